"""What a right sampler does, as plain functions: ordinary tests run them on the course's code, and `test_caught` on
planted faults, where they have to fail.  Every loop here is bounded, since a faulty one may never end."""

from __future__ import annotations

import itertools
import math

import torch

import spec_lib as sl
from spec_lib import trees as library
from spec_lib.drafters import RecurrentHead, Tree
from spec_lib.verification import RULES
from tests.helpers import enumeration as exact
from tests.helpers import trees
from tests.helpers.batches import (  # noqa: F401  (checks, collected at the end)
    check_batch_greedy,
    check_batch_greedy_refilled,
    check_batch_nan,
    check_batch_rounds,
    check_batch_samplings,
    check_batch_seeded,
    check_batch_seeded_refilled,
    check_batch_widened,
)
from tests.helpers.distributions import random_table
from tests.helpers.models import (
    counter,
    fed_positions,
    first_layers_alone,
    float_pair,
    plain_greedy,
    prompt,
    small_pair,
    table,
    tiny_gpt2,
    uncached,
)
from tests.helpers.served_checks import (  # noqa: F401  (checks, collected at the end)
    check_served_answers,
    check_served_strangers,
    check_served_text,
)

GAMMA = 4


def write(target, draft, ids, budget: int, **options) -> tuple[list[sl.Round], list[int]]:
    """(rounds, new tokens) of `speculative_rounds`, stopped by force where it does not stop itself."""
    rounds = list(exact.bounded(sl.speculative_rounds(target, draft, ids, budget, **options), budget))
    return rounds, [t for r in rounds for t in r.tokens]


# ---------------------------------------------------------------------------------------------------- the rule


def check_rule_distribution(sizes=((2, 1), (3, 2), (2, 3)), seeds=(0, 1, 2), starts: int = 2) -> None:
    """One round of a rule leaves the target's distribution as it is, to the last digit, whatever the draft."""
    for (size, gamma), seed, name in itertools.product(sizes, seeds, RULES):
        target, draft = exact.random_distributions(size, seed)
        for start in range(starts):
            distribution = exact.rule_distribution(RULES[name], target, draft, start, gamma)
            want = exact.continuations(target, gamma + 1)[gamma + 1][start]
            far = (distribution - want).abs().max().item()
            assert far < 1e-12, f"{name}: vocabulary {size}, gamma {gamma}, seed {seed}, after {start}: off by {far}"


def first_token(rule, p: list[float], q: list[float], drawn: list[float] | None = None) -> tuple[float, list[float]]:
    """(acceptance probability, distribution of the first token) for gamma 1 and the same p and q after each token."""
    rows = [torch.tensor(x, dtype=torch.float64).repeat(len(p), 1) for x in (p, q, drawn or q)]
    options = (rule, rows[0], rows[1], 0, 1, rows[2])
    return exact.mean_accepted(*options), exact.rule_distribution(*options).sum(1).tolist()


def close(a, b, by: float = 1e-12) -> bool:
    return all(abs(x - y) < by for x, y in zip(a, b, strict=True))


def check_rule_references() -> None:
    """Values worked out by hand."""
    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    for name, rule in RULES.items():
        stay, distribution = first_token(rule, p, q)
        assert close([stay, *distribution], [0.7, *p]), f"{name}: {stay}, {distribution}"
        stay, distribution = first_token(rule, p, [0, 1, 0])  # a draft that is certain of token 1
        assert close([stay, *distribution], [0.3, *p]), f"{name}: {stay}, {distribution}"
        stay, distribution = first_token(rule, [0.5, 0.5], [0.9, 0.1])
        assert close([stay, *distribution], [0.6, 0.5, 0.5]), f"{name}: {stay}, {distribution}"
        distributions = torch.tensor([p, p], dtype=torch.float64)
        n, distribution = rule(
            distributions, torch.tensor([q], dtype=torch.float64), torch.tensor([1]), torch.tensor([0.9]).double()
        )
        assert int(n) == 0 and close(distribution.tolist(), [1, 0, 0]), (
            f"{name}: the residual of {p}, {q} is {distribution}"
        )
        n, distribution = rule(
            distributions, torch.eye(3).double()[1:2], torch.tensor([1]), torch.tensor([0.9]).double()
        )
        assert int(n) == 0 and close(distribution.tolist(), [5 / 7, 0, 2 / 7]), (
            f"{name}: the residual of a certainty is {distribution}"
        )
        # Rounding may leave the ratio below 1 and the residual empty: the distribution must still be one.
        thirds = torch.tensor([[0.3332] * 3] * 2)
        n, distribution = rule(thirds, torch.tensor([[0.3335] * 3]), torch.tensor([1]), torch.tensor([0.9999]))
        assert int(n) == 0 and close(distribution.tolist(), [0.3332] * 3, 1e-6), (
            f"{name}: an empty residual gives {distribution}"
        )


def check_rule_of_blocks() -> None:
    """Block verification on the toy of four tokens, which shows every known mistake, where smaller ones do not."""
    target, draft = (torch.tensor([row] * 4).double() / 10 for row in ([4, 3, 2, 1], [1, 2, 3, 4]))
    got = exact.rule_distribution(RULES["block"], target, draft, 0, 2) - exact.continuations(target, 3)[3][0]
    assert got.abs().max() < 1e-14, f"off by {got.abs().max()}"
    accepted = exact.mean_accepted(RULES["block"], target, draft, 0, 2)
    assert abs(accepted - 1.03) < 1e-14, f"{accepted} of 2 tokens accepted, not 1.03"


def check_rule_acceptance(seeds=range(10)) -> None:
    """Accepted with probability sum min(p, q): no rule can accept more, and an exact one may accept less."""
    for seed, name in itertools.product(seeds, RULES):
        target, draft = exact.random_distributions(4, seed)
        for p, q in zip(target, draft, strict=True):
            stay, _ = first_token(RULES[name], p.tolist(), q.tolist())
            assert abs(stay - torch.minimum(p, q).sum().item()) < 1e-12, f"{name}: {stay} for {p}, {q}"


def check_rule_zero() -> None:
    """What the target cannot write is rejected even by a uniform of exactly 0, and a tie with p/q rejects."""
    p, q = torch.tensor([[0.0, 1.0], [0.5, 0.5]]), torch.tensor([[0.5, 0.5]])
    for name, rule in RULES.items():
        n, distribution = rule(p, q, torch.tensor([0]), torch.tensor([0.0]))
        assert int(n) == 0 and distribution.tolist() == [0, 1], f"{name} accepts a token of probability 0"
        n, _ = rule(p.flip(0), q * 2, torch.tensor([0]), torch.tensor([0.5]))
        assert int(n) == 0, f"{name} accepts on a tie"


def check_rules_agree(cases: int = 500) -> None:
    """Same inputs, same answer, in float32 and float64, with zeros, ties and certainties."""
    g = torch.Generator().manual_seed(0)
    google, deepmind = RULES["google"], RULES["deepmind"]
    lengths = set()
    for case in range(cases):
        size, k = 2 + case % 4, case % 5
        target, draft = exact.random_distributions(size, case)
        text = torch.randint(size, (k + 1,), generator=g)
        for i in range(k):  # drawn from the draft, as a drafted token is
            text[i + 1] = torch.multinomial(draft[text[i]], 1, generator=g)
        dtype = torch.float32 if case % 2 else torch.float64
        p, q, x = target[text].to(dtype), draft[text[:-1]].to(dtype), text[1:]
        u = torch.rand(k, generator=g, dtype=dtype) * (torch.rand(k, generator=g) < 0.8)  # a fifth is exactly 0
        tie = torch.rand(k, generator=g) < 0.2
        ratio = (p[:k].gather(1, x[:, None]) / q.gather(1, x[:, None])).squeeze(1)
        u = torch.where(tie & (ratio < 1), ratio, u)
        inputs = [t.clone() for t in (p, q, x, u)]
        (n, distribution), (m, other) = google(p, q, x, u), deepmind(p, q, x, u)
        assert int(n) == int(m), f"case {case}: {int(n)} and {int(m)} accepted"
        assert distribution.dtype == other.dtype == dtype
        assert close(distribution.tolist(), other.tolist(), 1e-12 if dtype == torch.float64 else 1e-6), f"case {case}"
        assert all(torch.equal(a, b) for a, b in zip(inputs, (p, q, x, u), strict=True)), "inputs were changed"
        lengths.add((k, int(n)))
    assert lengths == {(k, n) for k in range(5) for n in range(k + 1)}


# ---------------------------------------------------------------------------------------------------- the loop


def check_loop_distribution(
    vocab: int = 2, gamma: int = 1, budget: int = 5, rule: str = "google", eos=None, sampling=None, draft_sampling=None
) -> int:
    """The distribution of whole texts, by every branch through real caches, is the target's.  Returns the paths."""
    target, draft = small_pair(vocab)
    prompt = [1, 0, 1]
    options = {"gamma": gamma, "sampling": sampling, "draft_sampling": draft_sampling}
    distribution, paths = exact.loop_distribution(target, draft, prompt, budget, RULES[rule], eos, **options)
    stops = [] if eos is None else eos if isinstance(eos, list) else [eos]
    want = exact.target_distribution(target, prompt, budget, sampling, stops)
    far = exact.distance(distribution, want)
    assert far < 1e-10, f"{rule}, {vocab} tokens, gamma {gamma}, budget {budget}, EOS {eos}: off by {far}"
    assert abs(sum(distribution.values()) - 1) < 1e-10
    return paths


def check_loop_of_blocks() -> None:
    """The same with block verification, whose verdict on a token depends on those after it; with an end, too."""
    check_loop_distribution(gamma=2, budget=4, rule="block")
    check_loop_distribution(vocab=3, gamma=2, budget=3, rule="block", eos=2)


def check_loop_eos_distribution() -> None:
    """The same with an end-of-text token, which may fall on every position of a round."""
    check_loop_distribution(vocab=2, gamma=2, budget=5, eos=1)
    check_loop_distribution(vocab=3, gamma=1, budget=3, eos=[2, 0])


def check_loop_filters() -> None:
    """The same with a temperature and with filters, the draft's own ones included."""
    sampling, own = sl.Sampling(0.7, top_k=2), sl.Sampling(1.5, top_p=0.8)
    check_loop_distribution(vocab=3, gamma=1, budget=4, sampling=sampling, draft_sampling=own)
    check_loop_distribution(vocab=3, gamma=1, budget=3, draft_sampling=sl.Sampling(top_k=2))


def check_settings(cases: int = 40) -> None:
    """`Sampling` makes the distribution of a row of logits that it promises, written a second time."""
    g = torch.Generator().manual_seed(0)
    tried = [
        (1, None, None),
        (0, None, None),
        (0.5, None, None),
        (2, 3, None),
        (1, None, 0.6),
        (0.7, 4, 0.8),
        (0, 2, 0.5),
    ]
    for case, setting in itertools.product(range(cases), tried):
        logits = 2 * torch.randn(2 + case % 6, generator=g, dtype=torch.float64)
        s = sl.Sampling(*setting)
        got = s.probabilities(logits).tolist()
        assert close(got, exact.plain_distribution(logits, s)), f"{s} of {logits.tolist()}: {got}"


def check_randomness() -> None:
    """The stream of uniforms never stands still, and a text sampled with it has the toy's distribution [.5, .5]."""
    source = sl.Randomness(0)
    stream = torch.cat([source.uniforms(k, 0).clone() for k in (3, 1, 0, 5, 250, 300, 4)])
    assert len(stream.unique()) == len(stream) and stream.min() >= 0 and stream.max() < 1
    assert abs(stream.mean() - 0.5) < 5 * math.sqrt(1 / 12 / len(stream))
    size = 1500
    rounds, tokens = write(
        table([0.5, 0.5], [0.5, 0.5]), table([0.9, 0.1], [0.9, 0.1]), [0], size, gamma=1, generator=0, trace=True
    )
    for what, count, p in (
        ("tokens", tokens.count(0), 0.5),
        ("pairs", sum(a == b for a, b in itertools.pairwise(tokens)), 0.5),
        ("accepted", sum(r.accepted for r in rounds) / len(rounds) * size, 0.6),
    ):
        sigma = math.sqrt(size / 4) * (1 if what != "accepted" else math.sqrt(size / len(rounds)))
        assert abs(count - p * size) < 5 * sigma, f"{what}: {count} of {size}, expected {p * size}"


def check_one_seed_one_text() -> None:
    """A seed gives the same text under both rules."""
    target, draft = float_pair()
    texts = [write(target, draft, prompt(5), 40, generator=3, rule=name)[1] for name in ("google", "deepmind")]
    assert texts[0] == texts[1]


def check_positions() -> None:
    """A randomness is told the position in the text of every token and uniform."""

    class Positions(sl.Randomness):
        asked: list = []  # noqa: RUF012

        def draw(self, p, position):
            self.asked.append(int(position))
            return super().draw(p, position)

    target, draft = float_pair()
    source = Positions(0)
    size = 5
    for r in exact.bounded(sl.speculative_rounds(target, draft, prompt(size), 30, generator=source), 30):
        assert source.asked == [*range(size, size + len(r.drafted)), size + r.accepted]
        source.asked.clear()
        size += len(r.tokens)


def check_trace() -> None:
    """Distributions, overlap and cache lengths of every round are those of the text that is really there.

    A draft cache that is wrong after a rejection leaves every distribution exact: only q shows it.
    """
    target, draft = float_pair()
    seen = set()
    for seed in range(3):
        ids = prompt(5)
        text, unread = ids[0].tolist(), 0
        rounds = sl.speculative_rounds(target, draft, ids, 40, gamma=GAMMA, generator=seed, trace=True)
        for number, r in enumerate(exact.bounded(rounds, 40)):  # as they come: a fault is named in its own round
            k, n, size, where = len(r.drafted), r.accepted, len(text), f"seed {seed}, round {number + 1}"
            p, q = (uncached(m, text + r.drafted.tolist())[size - 1 :].softmax(-1) for m in (target, draft))
            assert r.p.shape == p.shape and (r.p - p).abs().max() < 1e-5, f"{where}: p is another text's"
            assert k == 0 or (r.q - q[:k]).abs().max() < 1e-5, f"{where}: q is another text's"
            overlap = torch.minimum(p, q).sum(-1)
            assert r.overlap.shape == (k + 1,) and (k == 0 or (r.overlap - overlap).abs().max() < 1e-5), where
            assert r.uniforms.shape == (k,)
            fine = [bool(u < p_ / q_) for u, p_, q_ in zip(r.uniforms, *_of(r), strict=True)]
            assert n == next((i for i, f in enumerate(fine) if not f), k), f"{where}: the verdicts are others"
            assert r.target_cache == (size - 1, size + k, size + n), f"{where}: {r.target_cache}"
            if k:
                want = (size - 1 - unread, size + k - 1, size + min(n, k - 1))
                assert r.draft_cache == want, f"{where}: {r.draft_cache}, not {want}"
                unread = int(n == k)
            seen.add("all" if n == k == GAMMA else "none" if n == 0 < k else "some" if n < k else "cut")
            text += r.tokens
    assert seen >= {"all", "none", "some"}, f"the sample shows only {seen}"


def _of(r: sl.Round) -> tuple[torch.Tensor, torch.Tensor]:
    """p and q at the drafted tokens."""
    x = r.drafted[:, None]
    return r.p[: len(x)].gather(1, x)[:, 0], r.q.gather(1, x)[:, 0]


def check_own_draft() -> None:
    """A model that drafts for itself is accepted everywhere, and each round gives gamma + 1 tokens."""
    target, _ = float_pair()
    for temperature, gamma in itertools.product((1e-3, 1.0), (1, 4)):
        left = 33
        options = {"gamma": gamma, "sampling": sl.Sampling(temperature), "generator": 0}
        for r in exact.bounded(sl.speculative_rounds(target, target, prompt(5), left, **options), left):
            k = min(gamma, left - 1)
            assert len(r.drafted) == r.accepted == k, f"T {temperature}, gamma {gamma}: {r.accepted} of {k}"
            assert r.origin == ("bonus" if k else "plain")
            left -= k + 1
        assert left == 0


def check_greedy(lengths=(1, 2, 7, 20), gammas=(1, 3)) -> None:
    """With temperature 0, plain greedy decoding token for token; gammas and rules are taken in turn."""
    target, draft = float_pair()
    for length, gamma, rule in zip(lengths, itertools.cycle(gammas), itertools.cycle(RULES), strict=False):
        ids = prompt(length)
        options = {"gamma": gamma, "sampling": sl.Sampling(0), "generator": 0, "rule": rule}
        text = write(target, draft, ids, 11, **options)[1]
        assert text == plain_greedy(target, ids, 11), f"prompt of {length}, gamma {gamma}, {rule}: {text}"
    p, q = table([0.6, 0.4], [0.6, 0.4]), table([0.4, 0.6], [0.4, 0.6])
    for seed, rule in itertools.product(range(5), RULES):
        assert write(p, q, [0], 5, sampling=sl.Sampling(0), generator=seed, rule=rule)[1] == [0] * 5


def check_eos() -> None:
    """EOS, one id or several, ends the text wherever in a round it falls, and nothing follows it."""
    count = counter(8)
    for gamma, rule in itertools.product(range(1, 9), RULES):
        options = {"gamma": gamma, "rule": rule}
        assert write(count, count, [1], 7, **options, eos_token_id=[5, 4])[1] == [2, 3, 4]
        assert write(count, count, [1], 7, **options, eos_token_id=[4, 5])[1] == [2, 3, 4]
        assert write(count, count, [4], 7, **options, eos_token_id=5)[1] == [5]
        for budget in (4, 5):
            job = sl.speculative(count, count, torch.tensor([1]), budget, **options, eos_token_id=6)
            assert job.tokens.tolist() == [2, 3, 4, 5, 6][:budget]
            assert job.stop_reason == ("eos" if budget == 5 else "length")
    target, draft = float_pair()
    ids = prompt(5)
    text = plain_greedy(target, ids, 12)
    for place, gamma, rule in zip(range(12), itertools.cycle(range(1, 9)), itertools.cycle(RULES), strict=False):
        want = text[: text.index(text[place]) + 1]
        for other in (draft, target):
            options = {"gamma": gamma, "sampling": sl.Sampling(0), "eos_token_id": text[place], "rule": rule}
            rounds, got = write(target, other, ids, 20, **options)
            assert got == want, f"EOS {text[place]}, gamma {gamma}: {got}, not {want}"
            assert sum(r.accepted + (r.token is not None) for r in rounds) == len(want)


def check_budget() -> None:
    """Exactly as many new tokens as asked for, after prompts of any length."""
    target, draft = float_pair()
    for length, gamma in itertools.product((1, 2, 20), (1, 4)):
        ids, options = prompt(length), {"gamma": gamma, "rule": "block" if length == 2 else "google", "generator": 0}
        for budget in {0, 1, 2, gamma, gamma + 1, 9}:
            rounds, tokens = write(target, draft, ids, budget, **options)
            assert len(tokens) == budget, f"{len(tokens)} new tokens after {length}, not {budget}"
            assert all(len(r.drafted) <= gamma for r in rounds)
            g = sl.speculative(target, draft, ids, budget, **options)
            assert g.tokens.tolist() == tokens and g.ids.tolist() == [ids[0].tolist() + tokens]
            assert g.stop_reason == "length" and len(g.rounds) == len(rounds)


def check_every_token() -> None:
    """Token 0 is a token like any other, and the bonus comes from the distribution after the last drafted token."""
    count = counter(3)
    for gamma in (1, 2, 3):
        assert write(count, count, [0], 7, gamma=gamma)[1] == [1, 2, 0, 1, 2, 0, 1]
        assert write(count, counter(3), [2], 3, gamma=gamma)[1] == [0, 1, 2]
        # a draft that is always wrong: everything comes from the residual
        assert write(count, table([1, 0, 0], [0, 1, 0], [0, 0, 1]), [1], 4, gamma=gamma)[1] == [2, 0, 1, 2]


def searched(text: list[int], k: int, longest: int = 3, shortest: int = 1) -> list[int]:
    """Prompt lookup without an index: k tokens from where the end of the text stood last before, longest end first."""
    for n in range(longest, shortest - 1, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                grown = list(text)
                for _ in range(k):
                    grown.append(grown[len(grown) - len(text) + start + n])
                return grown[len(text) :]
    return []


def check_lookup() -> None:
    """Prompt lookup proposes what a plain search of the whole text finds, in each round, whatever was accepted."""
    target, seen = table([0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.45, 0.45, 0.1]), set()
    for (longest, shortest), gamma in itertools.product(((3, 1), (1, 1), (4, 2)), (1, 4)):
        drafter, text, left = sl.drafters.NGram(longest, shortest), [0, 1, 2, 0], 60
        rounds = sl.speculative_rounds(target, drafter, torch.tensor(text), left, gamma=gamma, generator=gamma)
        for number, r in enumerate(exact.bounded(rounds, left), 1):
            want = searched(text, min(gamma, left - 1), longest, shortest)
            where = f"{longest} to {shortest}, gamma {gamma}, round {number}"
            assert r.drafted.tolist() == want, f"{where}: {r.drafted.tolist()}, not {want}, after {text}"
            assert r.cut == (left - 1 < gamma), f"{where}: to propose nothing is not to be cut short"
            seen.add("none" if not want else "all" if r.accepted == len(want) else "some")
            text, left = text + r.tokens, left - len(r.tokens)
    assert seen == {"none", "all", "some"}, f"the sample shows only {seen}"


def check_early_exit(own: bool = True, model=None, layers: int = 2, size: int = 5, new: int = 40) -> None:
    """q of every round is what the first layers, the last norm and the head give of the text that is really there,
    after rounds of every kind; p is the target's; the target reads nothing twice.

    own: on our own forward pass, where target and draft share a cache.
    """
    model = model or tiny_gpt2(2, layers=3)
    seen, sampling = set(), sl.Sampling(0.9)
    for seed in range(3):
        target, text = Watched(model) if own else sl.CachedModel(model), prompt(size)[0].tolist()
        read = max(0, size - 1)
        rounds = sl.speculative_rounds(target, sl.drafters.EarlyExit(layers), torch.tensor(text), new, gamma=GAMMA,
                                       generator=seed, trace=["distributions"], sampling=sampling)  # fmt: skip
        for number, r in enumerate(exact.bounded(rounds, new), 1):
            k, n, at, where = len(r.drafted), r.accepted, len(text) - 1, f"seed {seed}, round {number}"
            grown = text + r.drafted.tolist()
            p, q = uncached(model, grown)[at:], first_layers_alone(model, grown, layers)[at:]
            p, q = (sampling.probabilities(x) for x in (p, q))
            assert (r.p - p).abs().max() < 2e-5, f"{where}: p is another text's"
            assert k == 0 or (r.q - q[:k]).abs().max() < 2e-5, f"{where}: q is not the first layers'"
            read += k + 1
            if own:
                assert target.made.fed == read, f"{where}: {target.made.fed} positions read, not {read}"
                assert target.early == [(at + i, 1) for i in range(k)], f"{where}: {target.early} went through early"
                target.early.clear()
            seen.add("all" if n == k == GAMMA else "none" if n == 0 < k else "some" if n < k else "cut")
            text += r.tokens
    assert seen >= {"all", "none", "some"}, f"the sample shows only {seen}"


class Watched(sl.GPT2):
    """Our own pass, of which one can see the object that wrote the last text, and what went through early."""

    def fresh(self):
        """As it is, and remembered."""
        self.made, self.early = super().fresh(), []
        real = self.made.feed_early

        def feed_early(ids, layers, ahead=0):
            self.early.append((self.made.length + ahead, len(ids)))
            return real(ids, layers, ahead)

        self.made.feed_early = feed_early
        return self.made


def check_early_exit_positions() -> None:
    """A randomness is told the position of every token that the first layers draft."""

    class Positions(sl.Randomness):
        def draw(self, p, position):
            asked.append(int(position))
            return super().draw(p, position)

    asked, size, source = [], 5, Positions(0)
    rounds = sl.speculative_rounds(sl.GPT2(tiny_gpt2(2, layers=3)), sl.drafters.EarlyExit(2), prompt(size), 30,
                                   generator=source)  # fmt: skip
    for r in exact.bounded(rounds, 30):
        assert asked == [*range(size, size + len(r.drafted)), size + r.accepted]
        asked.clear()
        size += len(r.tokens)


def check_work() -> None:
    """The prompt is fed once to each model; then a target pass of at most gamma + 1 positions a round, and at most
    gamma + 1 draft positions."""
    target, draft = float_pair()
    with fed_positions(target, draft) as (by_target, by_draft):
        for length, gamma in itertools.product((1, 9), (1, 4)):
            by_target.clear(), by_draft.clear()
            first = [length - 1] if length > 1 else []
            rounds = sl.speculative_rounds(target, draft, prompt(length), 30, gamma=gamma, generator=1)
            passes, positions = [*first], sum(first)
            for r in exact.bounded(rounds, 30):
                passes.append(len(r.drafted) + 1)
                assert by_target == passes, f"prompt {length}, gamma {gamma}: {by_target}, not {passes}"
                assert max(passes[len(first) :]) <= gamma + 1
                assert by_draft[: len(first)] == first
                new, positions = sum(by_draft) - positions, sum(by_draft)
                assert new <= gamma + 1, f"the draft read {new} positions in a round"


# ---------------------------------------------------------------------------------------------------- trees


def check_tree_rule(
    shapes=("one by one", "a sibling after a child"), sizes=(3,), seeds=(0, 1), starts: int = 1
) -> None:
    """One round over a tree leaves the target's distribution as it is, to the last digit, however siblings are drawn:
    for chains with zeros and certainties (odd seeds), and for dense ones."""
    for size, seed, name, kind in itertools.product(sizes, seeds, shapes, trees.KINDS):
        dense = random_table(size, seed), random_table(size, 100 + seed).flip(1)
        target, draft = exact.random_distributions(size, seed) if seed % 2 else dense
        parents = trees.SHAPES[name]
        most = trees.depth(parents) + 1
        for start in range(starts):
            distribution = trees.tree_distribution(sl.verify_tree, target, draft, start, parents, kind)
            far = (distribution - exact.continuations(target, most)[most][start]).abs().max().item()
            assert far < 1e-12, f"{name}, {kind}: vocabulary {size}, seed {seed}, after {start}: off by {far}"


def check_tree_of_one_branch(cases: int = 300) -> None:
    """Where nothing branches it is the papers' rule, to the last bit."""
    g = torch.Generator().manual_seed(0)
    for case in range(cases):
        size, k = 2 + case % 4, case % 5
        target, draft = exact.random_distributions(size, case)
        text = torch.randint(size, (k + 1,), generator=g)
        for i in range(k):
            text[i + 1] = torch.multinomial(draft[text[i]], 1, generator=g)
        dtype = torch.float32 if case % 2 else torch.float64
        p, q, x = target[text].to(dtype), draft[text[:-1]].to(dtype), text[1:]
        u = torch.rand(k, generator=g, dtype=dtype) * (torch.rand(k, generator=g) < 0.8)
        n, distribution = sl.verify_google(p, q, x, u)
        path, other = sl.verify_tree(p, q, x, u, list(range(-1, k - 1)))
        assert path.tolist() == [i < int(n) for i in range(k)], f"case {case}: {path} for {n}"
        assert torch.equal(distribution, other), f"case {case}: {other}, not {distribution}"


def check_tree_loop(
    shape=(-1, -1, 0), kinds=trees.KINDS[::2], budget: int = 4, eos=None, make=None, drafter=None, rough: float = 1e-9
) -> int:
    """The distribution of whole texts with a tree, by every branch through real caches.  Returns the paths.

    make(model): the target in the loop; drafter: in the place of a `Tree` of the small draft model."""
    target, draft = small_pair(3)
    make, paths = make or (lambda m: exact.Emptied(sl.CachedModel(m), trees=True)), 0
    stops = [] if eos is None else [eos]
    for kind in kinds:
        tree = drafter or Tree(exact.Emptied(sl.CachedModel(draft), trees=True), list(shape), kind)
        options = {"eos": eos, "rough": rough}
        distribution, count = exact.loop_distribution(make(target), tree, [1, 0, 1], budget, **options)
        far = exact.distance(distribution, exact.target_distribution(target, [1, 0, 1], budget, None, stops))
        assert far < max(1e-10, rough), f"{shape}, {kind}, budget {budget}, EOS {eos}: off by {far}"
        paths += count
    return paths


TREE = [-1, -1, 0, 0, 1, 2, 5, -1]


def tree_rounds(target, tree, ids, budget: int, gamma: int = 8, **options) -> list[sl.Round]:
    """The rounds of a text with a tree."""
    return list(exact.bounded(sl.speculative_rounds(target, tree, ids, budget, gamma=gamma, **options), budget))


def check_tree_trace(seeds=range(3), make=sl.CachedModel, kinds=trees.KINDS) -> None:
    """Each row of p and q is what the model says after that path, read as a text of its own and without a cache; so
    positions, masks and the rows that are kept are those of the text that is really there."""
    target, draft = float_pair()
    branched = set()
    for seed, kind in itertools.product(seeds, kinds):
        ids = prompt(5, seed=seed)
        text = ids[0].tolist()
        own = sl.Sampling(0.6)
        rounds = tree_rounds(make(target), Tree(make(draft), TREE, kind), ids, 40, generator=seed, trace=True,
                             draft_sampling=own)  # fmt: skip
        for number, r in enumerate(rounds):
            where, k = f"{kind}, seed {seed}, round {number + 1}", len(r.drafted)
            if k == 0:
                text += r.tokens
                continue
            tokens = r.drafted.tolist()
            assert r.parents == TREE[:k] and r.overlap is None and r.rejected is None, where
            p = trees.rows_of(target, text, tokens, r.parents).softmax(-1)
            assert (r.p - p).abs().max() < 1e-5, f"{where}: p is another text's"
            said = own.probabilities(trees.rows_of(draft, text, tokens, r.parents))
            for i, parent in enumerate(r.parents):
                earlier = [tokens[j] for j in range(i) if r.parents[j] == parent]
                if kind == "certain":
                    likeliest = said[parent + 1].topk(1 + len(earlier)).indices.tolist()
                    assert tokens[i] == likeliest[-1] and r.q[i, tokens[i]] == 1, f"{where}: {tokens[i]}"
                    continue
                q = trees.candidate(said[parent + 1], earlier, kind, r.parents.count(parent))
                assert (r.q[i] - q).abs().max() < 2e-5, f"{where}: q of node {i} is another text's"
            path = trees.ancestors(r.parents, r.path[-1] if r.path else -1)
            assert r.path == path and r.accepted == len(path), f"{where}: {r.path} is no path"
            assert r.tokens == [*(tokens[i] for i in path), *([] if r.token is None else [r.token])], where
            leaf = (path[-1] if path else -1) not in r.parents
            assert r.origin == ("bonus" if leaf else "resampled"), f"{where}: {r.origin}"
            size = len(text)
            assert r.target_cache == (size - 1, size + k, size + len(path)), f"{where}: {r.target_cache}"
            branched.add(path != list(range(len(path))))
            text += r.tokens
        assert len(text) == ids.shape[1] + 40
    assert branched == {True, False}, "no path left the first branch"


def check_tree_greedy(lengths=(1, 2, 7, 20)) -> None:
    """With temperature 0, plain greedy decoding token for token, with candidates from the draft's soft distribution."""
    target, draft = float_pair()
    for length, kind in itertools.product(lengths, trees.KINDS):
        ids, tree = prompt(length), Tree(draft, TREE, kind)
        options = {"sampling": sl.Sampling(0), "draft_sampling": sl.Sampling(1), "generator": 0}
        text = [t for r in tree_rounds(target, tree, ids, 14, **options) for t in r.tokens]
        assert text == plain_greedy(target, ids, 14), f"prompt of {length}, {kind}: {text}"


def check_tree_ends() -> None:
    """EOS ends the text wherever on a path it falls; a budget is kept to; a draft that is right is accepted whole."""
    count = counter(8)
    for gamma in range(1, 9):
        for shape in ([-1, -1, 0, 2, 1], [-1, 0, 1, 2], TREE):
            for kind in trees.KINDS:
                tree, options = Tree(count, shape, kind), {"gamma": gamma, "generator": 0}
                assert write(count, tree, [1], 7, **options, eos_token_id=[5, 4])[1] == [2, 3, 4]
                for budget in (1, 4, 5):
                    job = sl.speculative(count, tree, torch.tensor([1]), budget, **options, eos_token_id=6)
                    assert job.tokens.tolist() == [2, 3, 4, 5, 6][:budget]
                    assert job.stop_reason == ("eos" if budget == 5 else "length")
                    assert all(len(r.drafted) <= gamma for r in job.rounds)
    rounds, tokens = write(count, Tree(count, [-1, 0, -1, 1]), [0], 9, gamma=4, generator=1)
    assert tokens == [1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert [(r.path, r.origin) for r in rounds] == [([0, 1, 3], "bonus"), ([0, 1, 3], "bonus"), (None, "plain")]


def check_tree_places() -> None:
    """Positions count depth, and a token sees the text, its ancestors and itself: a tree of six, drawn by hand."""
    # the text has rows 0 and 1, and is read; row 2 is its last token
    positions, seen = library.placed(2, [], [1, 2, 2, 3, 3, 4])
    assert positions.tolist() == [2, 3, 3, 4, 4, 4]
    assert ["".join(".#"[x] for x in row) for row in seen.int().tolist()] == [
        "###.....", "####....", "###.#...", "####.#..", "####..#.", "###.#..#"]  # fmt: skip
    positions, seen = library.placed(5, [1, 2, 2], [3, 4])  # three of these rows are in the cache already
    assert positions.tolist() == [4, 4] and seen.int().tolist() == [[1, 1, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 0, 1]]
    positions, seen = library.placed(0, [], [-1, 0, 0])  # an empty cache
    assert positions.tolist() == [0, 1, 1] and seen.int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


def check_tree_work() -> None:
    """One target pass of at most gamma + 1 positions a round; the draft reads each node that has children, once."""
    target, draft = float_pair()
    with fed_positions(target, draft) as (by_target, by_draft):
        known, left = Tree(draft, TREE), 30
        list(sl.speculative_rounds(target, known, prompt(3), 1))  # looked through before the count
        by_target.clear(), by_draft.clear()
        unread, rounds = 9, sl.speculative_rounds(target, known, prompt(9), left, gamma=8, generator=1)
        for number, r in enumerate(exact.bounded(rounds, left)):
            k, inner = len(r.drafted), {i for i in r.parents or [] if i >= 0}
            assert by_target == ([] if number else [8]) + [k + 1], f"{number}: {by_target}"
            assert sum(by_draft) == (len(inner) + unread if k else 0), f"the draft read {by_draft}"
            unread = len(r.tokens) - len(inner & set(r.path or [])) + (0 if k else unread)
            by_target.clear(), by_draft.clear()


def check_tree_trace_own() -> None:
    """The same with our own pass of GPT-2, as it is and with passes of fixed shape."""
    check_tree_trace([0], sl.GPT2, ["without replacement"])
    check_tree_trace([1], lambda model: sl.GPT2(model, graphs="eager"), ["independent"])


def a_head(target, inner: int = 8) -> RecurrentHead:
    """An untrained one, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return RecurrentHead(target, inner=inner)


def check_tree_with_head() -> None:
    """A recurrent head's trees: the distribution of whole texts, by every branch; and each q is made of the state from
    which the text's last token was drawn, of that token, and of the node's own ancestors."""
    head = a_head(small_pair(3)[0])
    kinds, tree = ("without replacement",), Tree(head, [-1, -1, 0])
    check_tree_loop(kinds=kinds, make=sl.CachedModel, drafter=tree, rough=1e-6)
    (target, _), own = float_pair(), sl.Sampling(0.7)
    head = a_head(target)
    for seed, make in ((0, sl.CachedModel), (1, sl.GPT2)):
        text, drafted = prompt(5, seed=seed)[0].tolist(), 0
        rounds = sl.speculative_rounds(make(target), Tree(head, TREE), torch.tensor(text), 40, gamma=8, generator=seed,
                                       trace=True, draft_sampling=own)  # fmt: skip
        for number, r in enumerate(exact.bounded(rounds, 40)):
            with torch.no_grad():
                states = {
                    -1: head.step(target.transformer(torch.tensor([text[:-1]]))[0][0, -1:], torch.tensor(text[-1:]))
                }
                for i, parent in enumerate(r.parents or []):
                    earlier = [int(r.drafted[j]) for j in range(i) if r.parents[j] == parent]
                    said = own.probabilities(head.logits(states[parent])[0])
                    q = trees.candidate(said, earlier, *kinds, r.parents.count(parent))
                    assert (r.q[i] - q).abs().max() < 1e-4, (
                        f"round {number + 1}: node {i} was drafted from another state"
                    )
                    states[i] = head.step(states[parent], r.drafted[i : i + 1])
            text, drafted = text + r.tokens, drafted + len(r.drafted)
        assert drafted > 40


def check_tree_positions() -> None:
    """A randomness is told the position in the text of every token of a tree, and of its uniforms."""

    class Positions(sl.Randomness):
        asked: list = []  # noqa: RUF012

        def draw(self, p, position):
            self.asked.append(int(position))
            return super().draw(p, position)

    (target, draft), source, size = float_pair(), Positions(0), 5
    for r in exact.bounded(
        sl.speculative_rounds(target, Tree(draft, TREE), prompt(size), 30, gamma=8, generator=source), 30
    ):
        depths = sorted(len(trees.ancestors(r.parents, i)) for i in range(len(r.drafted)))
        assert source.asked == [*(size + d - 1 for d in depths), size + r.accepted]
        source.asked.clear()
        size += len(r.tokens)


# ---------------------------------------------------------------------------------------------------- shared noise


def check_shared_noise(seeds=range(4), gammas=(1, 3, 7)) -> None:
    """With shared noise, the text of plain sampling token for token, whatever drafts, in float64."""
    target, draft = (m.double() for m in (tiny_gpt2(0, layers=2), tiny_gpt2(1)))
    own = sl.Sampling(1.5, None, 0.8)
    settings, accepted = itertools.cycle([(sl.Sampling(), None), (sl.Sampling(0.7, 9), None), (None, own)]), 0
    for seed, gamma in itertools.product(seeds, gammas):
        sampling, own = next(settings)
        noise, ids = sl.SharedNoise(seed), prompt(4, seed=seed)
        plain = sl.autoregressive(target, ids, 25, sampling=sampling, generator=noise).tokens.tolist()
        options = {"gamma": gamma, "sampling": sampling, "draft_sampling": own, "generator": noise}
        rounds, tokens = write(target, draft, ids, 25, **options)
        assert tokens == plain, f"seed {seed}, gamma {gamma}: {tokens}, not {plain}"
        accepted += sum(r.accepted for r in rounds)
    assert accepted > 20, f"only {accepted} accepted: the noise is not shared"


def check_clocks(count: int = 40_000) -> None:
    """The waiting times are exponential, of mean 1, independent of each other, and race for each token with p."""
    noise, five = sl.SharedNoise(3), math.sqrt(count)
    clocks = noise.clocks(torch.arange(count), 6).double()
    assert clocks.dtype == torch.float64 and (clocks > 0).all()
    assert ((clocks.mean(0) - 1).abs() < 5 / five).all() and ((clocks.var(0) - 1).abs() < 5 * math.sqrt(8) / five).all()
    for ahead in (0, 1):
        a, b = clocks[: count - ahead, :5], clocks[ahead:, 1:]
        assert (((a - 1) * (b - 1)).mean(0).abs() < 5 / five).all(), f"neighbours go together, {ahead} ahead"
    own = ((clocks[1:] - 1) * (clocks[:-1] - 1)).mean(0)
    assert (own.abs() < 5 / five).all()
    other = sl.SharedNoise(4).clocks(torch.arange(count), 6).double()
    for a, b in ((clocks, other), (clocks[1:], other[:-1]), (clocks[:-1], other[1:])):
        assert (((a - 1) * (b - 1)).mean(0).abs() < 5 / five).all(), "neighbouring seeds go together"
    p = torch.tensor([0.05, 0.0, 0.4, 0.25, 0.2, 0.1])
    drawn = torch.cat([noise.draw(p, i) for i in range(4000)])
    seen, want = torch.bincount(drawn, minlength=6).double(), 4000 * p.double()
    assert seen[1] == 0 and ((seen - want)[p > 0] ** 2 / want[p > 0]).sum() < 23.5  # .9997 quantile, 4 degrees
    assert torch.equal(noise.clocks(torch.tensor([17, 5]), 3), noise.clocks(torch.arange(20), 6)[[17, 5], :3])


CHECKS = {name.removeprefix("check_"): f for name, f in list(globals().items()) if name.startswith("check_")}
