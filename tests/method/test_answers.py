"""What a plug may not answer: each said in one sentence that names the plug and shows what came, before a wrong text is
written.  And what no loop can see, which `protocols` says."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib.checks import chi_squared, every_text, first_tokens, largest_difference, target_texts, toy
from spec_lib.records import identity_sides
from tests.method.test_protocols import PROMPT, Counts, Repeats, random_tables


def refused(call, *words: str) -> str:
    with pytest.raises(ValueError) as error:
        call()
    text = str(error.value)
    assert "\n" not in text and all(word in text for word in words), text
    return text


def write(target=None, draft=None, new: int = 20, **options) -> sl.Generation:
    return sl.speculative(target or Counts(), draft or Repeats(), PROMPT, new, **{"generator": 1, **options})


def model(**members):
    """A stranger's model with other members."""
    return type("Odd", (Counts,), members)()


def from_p(p, q, drafted, uniforms):
    """A rule that looks at nothing but the first row of p, whatever its shape."""
    return 0, p[0]


# --- logits -----------------------------------------------------------------------------------------------------------

LOGITS = {
    "too few rows": (lambda x: x[-1:], "a tensor (1, 7)"),
    "too many": (lambda x: torch.cat([x, x]), "a tensor ("),
    "wide": (lambda x: torch.nn.functional.pad(x, (0, 3)), ", 10) of float64 on cpu"),
    "narrow": (lambda x: x[:, :5], ", 5) of float64"),
    "a batch": (lambda x: x[None], "a tensor (1, "),
    "one row": (lambda x: x[-1], "a tensor (7,)"),
    "whole numbers": (lambda x: x.long(), "of int64"),
    "a list": (lambda x: x.tolist(), "a list"),
    "with a cache": (lambda x: (x, None), ", None)"),
    "nothing": (lambda x: None, "got None"),
}


@pytest.mark.parametrize("case", LOGITS)
@pytest.mark.parametrize("rule", ["google", from_p])
def test_a_target_whose_logits_have_another_shape_is_named(case, rule):
    """A rule of one's own would read the wrong row, and a wider row would have tokens that the text cannot have."""
    spoil, got = LOGITS[case]
    odd = model(feed=lambda self, ids, keep=None: spoil(Counts.feed(self, ids)))
    text = refused(lambda: write(odd, rule=rule), "the target model's feed must return logits (", ", 7)", got)
    assert "a row a token" in text


@pytest.mark.parametrize("case", [case for case in LOGITS if case not in ("too few rows", "too many")])
def test_so_it_is_where_the_target_writes_alone(case):
    spoil, got = LOGITS[case]
    odd = model(feed=lambda self, ids, keep=None: spoil(Counts.feed(self, ids)))
    refused(lambda: sl.autoregressive(odd, PROMPT, 5), "the target model's feed must return logits (n, 7)", got)


@pytest.mark.parametrize("case", ["a batch", "one row", "whole numbers", "with a cache", "nothing"])
def test_a_draft_models_logits_are_named_too(case):
    spoil, got = LOGITS[case]
    odd = model(feed=lambda self, ids, keep=None: spoil(Counts.feed(self, ids)))
    refused(lambda: write(Counts(), odd), "the draft model's feed must return logits (n, vocab)", got)


class Each:
    """A drafter with a session for each text."""

    def start(self, *given):
        return Repeats().start(*given)


class CountsRows:
    """Several texts of a stranger's model, each with a model of its own."""

    def __init__(self, model, slots):
        self.model, self.texts, self.lengths = model, [type(model)() for _ in range(slots)], [0] * slots

    def feed(self, first, ids, keep=None):
        found = []
        for slot, x in enumerate(ids, first):
            self.texts[slot].rollback(self.lengths[slot])
            found.append(self.texts[slot].feed(x, keep) if len(x) else torch.zeros(0, 7))
            self.lengths[slot] = self.texts[slot].length
        return found

    def move(self, source, to):
        self.texts[to].text, self.lengths[to] = self.texts[source].text[: self.lengths[source]], self.lengths[source]

    def clear(self, slot):
        self.texts[slot].text, self.lengths[slot] = [], 0


def test_a_strangers_model_writes_in_a_batch_with_rows_of_its_own():
    prompts, new = [[1, 2, 3], [4], [5, 5]], [20, 9, 14]
    many = type("Many", (Counts,), {"rows": lambda self, slots: CountsRows(Counts(), slots)})
    got = sl.speculative_batch(many(), many(), prompts, new, generators=[1, 2, 3], slots=2)
    for ids, n, seed, g in zip(prompts, new, (1, 2, 3), got, strict=True):
        alone = sl.speculative(Counts(), Counts(), torch.tensor(ids), n, generator=seed)
        assert g.tokens.tolist() == alone.tokens.tolist()


def test_in_a_batch_the_text_is_named_whose_logits_have_another_shape():
    class Few(CountsRows):
        def feed(self, *given):
            return [x[-1:] for x in super().feed(*given)]

    odd, prompts = model(rows=lambda self, slots: Few(Counts(), slots)), [[1, 2, 1], [4]]
    words = ("text 1 of 2: the target model's feed must return logits (", "a tensor (1, 7)")
    refused(lambda: sl.speculative_batch(odd, Each(), prompts, 9, rule=from_p), *words)


# --- models, sessions, randomness -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["length", "vocab", "max_length", "device"])
@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_model_without_a_member_is_named_before_anything_is_read(name, role):
    class Less:
        def feed(self, ids, keep=None):
            raise AssertionError

        def rollback(self, length):
            pass

    for member, value in {"length": 0, "vocab": 7, "max_length": None, "device": torch.device("cpu")}.items():
        if member != name:
            setattr(Less, member, value)
    plugs = (Less(), Repeats()) if role == "target" else (Counts(), Less())
    refused(lambda: sl.speculative_rounds(*plugs, PROMPT, 5), f"the {role}, ", f"must have {name} as protocols.Model")


@pytest.mark.parametrize("members", [{"length": Counts.rollback}, {"vocab": None}, {"vocab": "7"}])
def test_a_length_or_vocab_that_is_no_number_is_named(members):
    (name,) = members
    refused(
        lambda: sl.speculative_rounds(model(**members), Repeats(), PROMPT, 5), f"must have {name} as protocols.Model"
    )


def test_a_fresh_that_returns_nothing_is_named():
    refused(lambda: write(model(fresh=lambda self: None)), "the target, None, must have length, vocab")


@pytest.mark.parametrize("session", [None, SimpleNamespace(propose=None), [1]])
def test_a_start_that_returns_no_session_is_named(session):
    drafter = SimpleNamespace(start=lambda *given: session)
    refused(lambda: write(draft=drafter), "the drafter's start must return a session with propose and accept, got")


@pytest.mark.parametrize("token", [1, torch.tensor(1), torch.tensor([1.0]), torch.tensor([1, 2]), [1]])
def test_a_source_that_draws_no_token_is_named(token):
    source = SimpleNamespace(draw=lambda p, position: token, uniforms=lambda k, position: torch.rand(k))
    for call in (write, lambda **o: write(draft=Counts(), **o)):
        refused(lambda c=call: c(generator=source), "draw must return one token, a tensor (1,) of int64, got")
    refused(lambda: sl.autoregressive(Counts(), PROMPT, 5, generator=source), "draw must return one token")


def test_a_rollback_that_does_not_keep_to_its_length_is_told_so():
    words = (
        "the target holds",
        "another text was read with it",
        "or its length does not go with its feed and rollback",
    )
    refused(lambda: write(model(rollback=lambda self, length: None)), *words)
    words = ("the draft model holds", "another text", "or its length does not go with its feed and rollback")
    table, _ = random_tables()
    broken = model(rollback=lambda self, length: length or Counts.rollback(self, 0))
    refused(lambda: write(table, broken, 60), *words)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("role", ["target", "draft"])
def test_logits_that_are_infinite_are_not_called_a_nan_only(value, role):
    odd = model(feed=lambda self, ids, keep=None: Counts.feed(self, ids, keep).index_fill(1, torch.tensor([2]), value))
    plugs = (odd, Repeats()) if role == "target" else (Counts(), odd)
    refused(lambda: write(*plugs), f"the {role} model gave NaN logits in round 1 (text position 3), or infinite ones")


# --- drafts -----------------------------------------------------------------------------------------------------------


class Changed(Repeats):
    """Drafts something else of what `ModelDrafter` drafts."""

    def __init__(self, change):
        self.change = change

    def start(self, ids, sampling, randomness, target):
        session = sl.ModelDrafter(random_tables()[1]).start(ids, sampling, randomness, target)
        propose = session.propose
        session.propose = lambda k: self.change(propose(k)) if k else propose(k)
        return session


DRAFTS = {
    "tokens of a batch": (
        lambda d: sl.Draft(d.tokens[None], d.q),
        "of shape (k,), got tokens that are a tensor (1, 4)",
    ),
    "listed tokens": (lambda d: sl.Draft(d.tokens.tolist(), d.q), "of shape (k,), got tokens that are [", ""),
    "a pair": (
        lambda d: (d.tokens, d.q),
        "of shape (k,), got (a tensor (4,) of int64 on cpu, a tensor (4, 7) of float64",
    ),
    "floating tokens": (
        lambda d: sl.Draft(d.tokens + 0.5, d.q),
        "tokens must be of an integer dtype, got a tensor (4,)",
    ),
    "whether tokens": (lambda d: sl.Draft(d.tokens > 2, None), "tokens must be of an integer dtype", "of bool"),
    "a mask for q": (lambda d: sl.Draft(d.tokens, d.q > 0.2), "q must be a tensor (k, vocab) or None", "of bool"),
    "counts for q": (lambda d: sl.Draft(d.tokens, (9 * d.q).long()), "q must be a tensor (k, vocab) or None", "int64"),
    "of 8 bits": (lambda d: sl.Draft(d.tokens, d.q.to(torch.float8_e5m2)), "16 bits or more, got", "of float8_e5m2"),
    "complex": (lambda d: sl.Draft(d.tokens, d.q + 0j), "q must be a tensor (k, vocab) or None", "complex128"),
    "elsewhere": (
        lambda d: sl.Draft(d.tokens, d.q.to("meta")),
        "the drafter's q is on meta and the target on cpu: move q",
    ),
}


@pytest.mark.parametrize("case", DRAFTS)
@pytest.mark.parametrize("rule", ["google", "deepmind", "block"])
def test_a_draft_of_another_form_is_shown(case, rule):
    change, *words = DRAFTS[case]
    refused(lambda: write(random_tables()[0], Changed(change), rule=rule), *words)


def test_an_empty_draft_may_be_what_torch_makes_of_an_empty_list():
    """`torch.tensor([])` is float32."""

    class Idle(Repeats):
        def propose(self, k):
            return sl.Draft(torch.tensor([]), None)

    plain = sl.autoregressive(Counts(), PROMPT, 9, generator=1).tokens.tolist()
    assert write(draft=Idle(), new=9).tokens.tolist() == plain


# --- rules ------------------------------------------------------------------------------------------------------------


def test_a_rule_of_other_parameters_is_refused_before_anything_is_read():
    def three(p, q, drafted):
        raise AssertionError

    untouched = model(feed=lambda *given: pytest.fail("it was read"))
    refused(lambda: write(untouched, rule=three), "rule must take (p, q, drafted, uniforms), got")
    refused(lambda: write(untouched, rule=lambda p, q, x, u, temperature: (0, p[0])), "temperature")
    for right in (lambda *given: (0, given[0][0]), lambda p, q, x, u, temperature=1: (0, p[0]), max_of_four):
        assert len(write(rule=right).tokens) == 20


def max_of_four(p, q, x, u, *, position):
    return 0, p[0]


@pytest.mark.parametrize(
    "answer, shown",
    [
        (lambda p: (True, p[0]), "got (True, a tensor (7,) of float64 on cpu), where p is a tensor ("),
        (lambda p: (None, p[0]), "got (None, a tensor (7,)"),
        (lambda p: (0, p[:1]), "got (0, a tensor (1, 7)"),
        (lambda p: (0, p[0], 1), "got (0, a tensor (7,) of float64 on cpu, 1)"),
        (lambda p: (0, p[0].to("meta")), "on meta), where p is a tensor"),
        (lambda p: (torch.tensor(0, device="meta"), p[0]), "got (a tensor () of int64 on meta"),
    ],
)
def test_a_rules_answer_is_shown(answer, shown):
    refused(lambda: write(rule=lambda p, q, x, u: answer(p)), "the rule must return n and a distribution, got", shown)


# --- what the page in the README says of a rule and a drafter of one's own --------------------------------------------


def keeps_all(p, q, drafted, uniforms):
    return len(drafted), p[-1]


def test_a_rule_in_the_form_of_the_protocol_is_enumerated():
    texts = target_texts(toy.P, 3)

    def far(rule) -> float:
        return largest_difference(first_tokens(every_text(rule, toy.P, toy.Q, length=3, gamma=2), 3), texts)

    for rule in (sl.verify_google, sl.verify_deepmind, from_p):
        assert far(rule) < 1e-12
    assert far(keeps_all) > 0.01
    refused(lambda: far(sl.verify_block), "other thresholds than p/q")


def test_a_drafter_whose_q_is_not_what_it_draws_from_is_found_by_sampling_alone():
    """The loop cannot see it."""

    class Shifted(Repeats):
        def start(self, ids, sampling, randomness, target):
            session = sl.ModelDrafter(sl.TableModel(toy.Q)).start(ids, sampling, randomness, target)
            right = session.propose
            session.propose = lambda k: sl.Draft((right(k).tokens + self.by) % 3, session.end().q)
            return session

    chances = target_texts(toy.P, 3)
    for by, alarm in ((0, False), (1, True)):
        drafter, counts = Shifted(), Counter()
        drafter.by = by
        for seed in range(1000):
            g = sl.speculative(sl.TableModel(toy.P), drafter, torch.tensor([1, 0]), 3, gamma=2, generator=seed)
            counts[tuple(g.tokens.tolist())] += 1
        assert (chi_squared.goodness_of_fit(counts, chances).p_value < 0.001) == alarm


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [torch.Generator, lambda: sl.SharedNoise(1), lambda: sl.Randomness(1)])
def test_an_engine_gives_no_two_texts_at_a_time_one_source(shared):
    source = shared()
    engine = sl.Engine(*random_tables(), slots=1)
    first = engine.submit(PROMPT, 5, generator=source)
    refused(lambda: engine.submit(PROMPT, 5, generator=source), "the same generator", "a seed or a source of its own")
    engine.submit(PROMPT, 5), engine.submit(PROMPT, 5)  # of torch's own, which all share
    while engine.running or engine.waiting:
        engine.step()
    assert len(first.generation().tokens) == 5
    engine.submit(PROMPT, 5, generator=source)  # one after the other


def test_a_source_within_a_source_is_seen():
    torchs = torch.Generator()
    with pytest.raises(ValueError, match="text 2 of 2: another text draws from the same generator"):
        sl.speculative_batch(*random_tables(), [[1], [2]], 5, generators=[torchs, sl.Randomness(torchs)])


def test_rounds_without_overlap_are_refused_where_it_is_asked_for():
    rounds = write(new=9).rounds
    refused(lambda: identity_sides(rounds), "a round has no overlap: write with trace=True")


def test_a_list_of_texts_for_one_is_told_so():
    refused(lambda: sl.speculative([PROMPT], Repeats(), 5, 5) and None, "target must be")
    for ids in ([PROMPT], [PROMPT[0], PROMPT[0]]):
        refused(lambda ids=ids: sl.speculative(Counts(), Repeats(), ids, 5), "for several texts see speculative_batch")


def test_a_pair_of_a_model_of_ones_own_is_refused_in_a_sentence():
    for plugs, role in (((Counts(), Counts()), "target"), ((sl.load_pair("tiny").target, Counts()), "draft")):
        refused(
            lambda p=plugs: sl.Pair(*p, sl.load_pair("tiny").tokenizer), f"the {role} of a Pair must be", "speculative"
        )
