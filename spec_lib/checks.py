"""Exercise checkers: they print yours, the expected value and the likely mistake, and never raise.

Each tries the simplest case first and compares with an answer worked out here by other means than the module's.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from .records import Round

# The ten claims of notebook 00, in its order; the course tests each one somewhere.  All are false.
CLAIMS = (
    "Accepted draft tokens are distributed as the target's own tokens.",
    "With the same seed, speculative sampling writes the same text as plain sampling.",
    "The acceptance rate is accepted tokens over drafted tokens.",
    "If the text reads fluently, the sampler is right.",
    "A worse draft model writes a worse text.",
    "Later places in a draft are rejected more often, once they are reached.",
    "The colder the sampling, the more is accepted.",
    "A bigger gamma is faster.",
    "It speeds up reading the prompt.",
    "It raises the throughput of a busy server.",
)


def keep_answers(answers: str, folder: str | Path | None = None) -> None:
    """Keep the reader's guesses about `CLAIMS`, ten letters T, F or ?, for the notebooks that settle them.

    A "?" never overwrites an earlier answer.  They are kept in a small file in the home folder.
    """
    letters = str(answers).strip().upper().replace(" ", "")
    if len(letters) != len(CLAIMS) or set(letters) - set("TF?"):
        print(f"Write {len(CLAIMS)} letters, each T, F or ?; this was {answers!r}.")
        return
    try:
        file = _answers_file(folder)
        kept = {**kept_answers(folder), **{str(i): x for i, x in enumerate(letters, 1) if x != "?"}}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept))
    except (OSError, RuntimeError):  # the second where there is no home folder
        print("Your answers could not be written to disk; note them on paper.")
        return
    print(f"Kept: {len(CLAIMS) - letters.count('?')} answers, {letters.count('?')} left open.")


def kept_answers(folder: str | Path | None = None) -> dict[str, str]:
    """The kept guesses: {"1": "T", ...}; empty where there are none."""
    try:
        return dict(json.loads(_answers_file(folder).read_text()))
    except (OSError, RuntimeError, ValueError, TypeError):
        return {}


def _answers_file(folder: str | Path | None) -> Path:
    return Path(folder or Path.home() / ".speculative_sampling") / "answers.json"


def _run(function: Callable, cases: Sequence[tuple], wrong: Sequence[tuple[str, Callable]]) -> bool:
    """Try (name, arguments, expected) in order; at the first difference say what it looks like.

    wrong: (likely mistake, how that mistake would answer).
    """
    for name, arguments, expected in cases:
        try:
            got = function(*copy.deepcopy(arguments))  # it may change what it was given
            close, shown = got is not None and _close(got, expected), _show(got)
        except Exception as error:  # an exercise must never stop the notebook
            print(f"Not yet: {name} raised {type(error).__name__}: {error}")
            return False
        if got is None or got is Ellipsis:
            print("Nothing returned yet: replace the placeholder, then run the cell and this check again.")
            return False
        if close:
            continue
        print(f"Not yet: {name}\n  yours     {shown}\n  expected  {_show(expected)}")
        for mistake, answer in _likeliest_first(function, cases, wrong):
            with contextlib.suppress(Exception):  # this mistake has no answer in this case
                if _close(got, answer(*copy.deepcopy(arguments))):
                    print(f"  Hint: {mistake}.")
                    break
        return False
    print(f"Right, in all {len(cases)} cases.")
    return True


def _likeliest_first(function: Callable, cases: Sequence[tuple], wrong: Sequence[tuple[str, Callable]]) -> list[tuple]:
    """The mistakes, those first that answer as the function does in the most cases: one case can look like several."""

    def agreements(answer: Callable) -> int:
        agree = 0
        for _, arguments, _ in cases:
            with contextlib.suppress(Exception):
                agree += _close(function(*copy.deepcopy(arguments)), answer(*copy.deepcopy(arguments)))
        return agree

    return sorted(wrong, key=lambda mistake: -agreements(mistake[1]))


def _numbers(x) -> list[float]:
    return torch.as_tensor(x, dtype=torch.float64).flatten().tolist()


def _close(got, expected) -> bool:
    try:
        a, b = _numbers(got), _numbers(expected)
    except (TypeError, ValueError, RuntimeError):
        return False
    return len(a) == len(b) and all(
        x == y or abs(x - y) < 1e-5 or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True)
    )


def _show(x) -> str:
    try:
        values = _numbers(x)
    except (TypeError, ValueError, RuntimeError):
        return repr(x)[:80]
    return ", ".join(f"{v:.3f}".rstrip("0").rstrip(".") for v in values[:8]) + (" ..." if len(values) > 8 else "")


# --- notebook 00 ------------------------------------------------------------------------------------------------


def _rounds(accepted: Sequence[int], drafted: Sequence[int]) -> list[Round]:
    return [
        Round(torch.zeros(k, dtype=torch.int64), n, 1, "plain" if k == 0 else "bonus" if n == k else "resampled")
        for n, k in zip(accepted, drafted, strict=True)
    ]


def check_tokens_per_pass(function: Callable) -> bool:
    """function(rounds) -> emitted tokens per target pass."""
    cases = [
        ("one round, 2 of 4 drafts accepted", (_rounds([2], [4]),), 3.0),
        ("rounds with 4, 2, 0 and 3 of 4 accepted", (_rounds([4, 2, 0, 3], [4] * 4),), 3.25),
        ("a round without a draft", (_rounds([0, 4], [0, 4]),), 3.0),
        ("an accepted token ended the text: nothing was added", ([Round(torch.zeros(3).long(), 2, None, None)],), 2.0),
    ]
    wrong = [
        (
            "the target's own token (the replacement or the bonus) is not counted",
            lambda r: _mean(x.accepted for x in r),
        ),
        ("rejected drafts are counted as text", lambda r: _mean(len(x.drafted) + 1 for x in r)),
        ("tokens are added up, not divided by the passes", lambda r: sum(x.accepted + 1 for x in r)),
    ]
    return _run(function, cases, wrong)


def check_acceptance_rate(function: Callable) -> bool:
    """function(rounds) -> accepted / (accepted + rejected)."""
    cases = [
        ("one round, 2 of 4 drafts accepted", (_rounds([2], [4]),), 2 / 3),
        ("rounds with 4, 2, 0 and 3 of 4 accepted", (_rounds([4, 2, 0, 3], [4] * 4),), 0.75),
        ("the last round drafts 3 only, all accepted", (_rounds([4, 2, 0, 3], [4, 4, 4, 3]),), 9 / 11),
        (
            "the second round ends with an accepted end-of-text token: nothing fell in it",
            ([*_rounds([2], [4]), Round(torch.zeros(3).long(), 2, None, None)],),
            4 / 5,
        ),
    ]
    wrong = [
        (
            "a round that stopped at an accepted end-of-text token counts as a rejection; nothing fell in it",
            lambda r: sum(x.accepted for x in r) / sum(x.accepted + (x.accepted < len(x.drafted)) for x in r),
        ),
        (
            "drafts behind a rejection count as rejected; the target never judged them",
            lambda r: sum(x.accepted for x in r) / sum(len(x.drafted) for x in r),
        ),
        (
            "every round counts one rejection, also those that accepted the whole draft",
            lambda r: sum(x.accepted for x in r) / (sum(x.accepted for x in r) + len(r)),
        ),
        ("this is the share of rounds that accepted everything", lambda r: _mean(x.origin == "bonus" for x in r)),
    ]
    return _run(function, cases, wrong)


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


# --- notebook 01 ------------------------------------------------------------------------------------------------


def check_temperature(function: Callable) -> bool:
    """function(logits, temperature) -> law; temperature 0 is greedy."""

    def law(logits, t, power=1.0):
        if t == 0:
            top = max(logits.tolist())
            return [float(i == logits.tolist().index(top)) for i in range(len(logits))]
        weights = [math.exp((x - max(logits.tolist())) / t * power) for x in logits.tolist()]
        return [w / sum(weights) for w in weights]

    x = torch.tensor([2.0, 1.0, 0.0])
    cases = [(f"logits 2, 1, 0 at temperature {t}", (x, t), law(x, t)) for t in (1.0, 0.5, 2.0, 0)]
    cases.append(
        ("logits 1000, 999, 0 at temperature 1", (torch.tensor([1000.0, 999.0, 0.0]), 1.0), [0.731059, 0.268941, 0.0])
    )
    cases.append(("logits 0, 3, -1 at temperature 0", (torch.tensor([0.0, 3.0, -1.0]), 0), [0.0, 1.0, 0.0]))
    wrong = [
        (
            "logits are multiplied by the temperature instead of divided",
            lambda a, t: law(a, 1 / t) if t else [1 / 3] * 3,
        ),
        (
            "the probabilities are divided, not the logits",
            lambda a, t: [v / t for v in law(a, 1.0)] if t else [0.0] * 3,
        ),
        (
            "temperature 0 divides by zero: it means the likeliest token",
            lambda a, t: [math.nan] * 3 if t == 0 else [2.0],
        ),
    ]
    return _run(function, cases, wrong)


def check_top_p(function: Callable) -> bool:
    """function(p, top_p) -> law kept on the smallest set of likeliest tokens whose mass reaches top_p."""

    def law(p, mass, keep=None):
        order = sorted(range(len(p)), key=lambda i: -float(p[i]))
        kept, total = [], 0.0
        for i in order:
            if total >= mass - 1e-6:
                break
            kept.append(i)
            total += float(p[i])
        kept = kept if keep is None else keep(order, kept)
        norm = sum(float(p[i]) for i in kept) or 1.0
        return [float(p[i]) / norm if i in kept else 0.0 for i in range(len(p))]

    p, q = torch.tensor([0.5, 0.25, 0.125, 0.125]), torch.tensor([0.125, 0.5, 0.125, 0.25])
    cases = [
        ("p = .5 .25 .125 .125, top_p = .6", (p, 0.6), law(p, 0.6)),
        ("p = .5 .25 .125 .125, top_p = .75, reached exactly", (p, 0.75), law(p, 0.75)),
        ("p = .5 .25 .125 .125, top_p = .3, below the first token", (p, 0.3), law(p, 0.3)),
        ("p = .125 .5 .125 .25, top_p = .7, tokens in another order", (q, 0.7), law(q, 0.7)),
    ]
    wrong = [
        (
            "the kept probabilities are not divided by their sum",
            lambda a, m: [float(x) * (y > 0) for x, y in zip(a, law(a, m), strict=True)],
        ),
        ("the token that reaches top_p is left out", lambda a, m: law(a, m, lambda order, kept: kept[:-1])),
        (
            "one token too many is kept: stop once the mass has reached top_p",
            lambda a, m: law(a, m, lambda order, kept: order[: len(kept) + 1]),
        ),
        ("tokens are taken in the order of their ids, not of their probabilities", lambda a, m: _by_id(a, m)),
    ]
    return _run(function, cases, wrong)


def _by_id(p, mass):
    kept, total = [], 0.0
    for i in range(len(p)):
        if total >= mass - 1e-6:
            break
        kept.append(i)
        total += float(p[i])
    return [float(p[i]) / total if i in kept else 0.0 for i in range(len(p))]


def check_positions(function: Callable) -> bool:
    """function(prompt, new, cached) -> positions fed to the model in all, to write `new` tokens behind `prompt`."""

    def count(prompt, new, cached):
        total = 0
        for i in range(new):
            total += (prompt if i == 0 else 1) if cached else prompt + i
        return total

    cases = [
        ("prompt 5, new 1, without cache", (5, 1, False), count(5, 1, False)),
        ("prompt 5, new 4, without cache", (5, 4, False), count(5, 4, False)),
        ("prompt 5, new 4, with cache", (5, 4, True), count(5, 4, True)),
        ("prompt 100, new 200, without cache", (100, 200, False), count(100, 200, False)),
        ("prompt 100, new 200, with cache", (100, 200, True), count(100, 200, True)),
    ]
    wrong = [
        (
            "the last token is fed too; it is drawn, and nothing is asked of it",
            lambda p, n, c: p + n if c else count(p, n + 1, c) - p,
        ),
        ("the prompt is read once, but without a cache every step reads it again", lambda p, n, c: p + n - 1),
        (
            "the text does not grow: each step reads one token more than the last",
            lambda p, n, c: p * n if not c else p + n - 1,
        ),
    ]
    return _run(function, cases, wrong)


# --- notebook 03 ------------------------------------------------------------------------------------------------


def _law(*numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _by_row(row: Callable) -> Callable:
    """row(p, q) -> list, for plain lists, made to work on single laws and on stacks of them."""

    def answer(p, q):
        if p.dim() == 1:
            return row(p.tolist(), q.tolist())
        return [row(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True)]

    return answer


def check_overlap(function: Callable) -> bool:
    """function(p, q) -> the probability that one guess from q is accepted."""

    def walk(p, q):  # guess by guess, as the rule does it
        total = 0.0
        for a, b in zip(p.tolist(), q.tolist(), strict=True):
            if b > 0:
                total += b * min(1.0, a / b)
        return total

    def ratios(p, q):
        return [min(1.0, a / b) if b else (math.nan if a == 0 else 1.0) for a, b in _both(p, q)]

    p, q = _law(0.5, 0.3, 0.2), _law(0.2, 0.5, 0.3)
    cases = [
        ("p = .5 .3 .2, q = .2 .5 .3", (p, q), walk(p, q)),
        ("p = q = .5 .3 .2", (p, p.clone()), 1.0),
        ("p = .5 .5 0 and q = 0 .5 .5", (_law(0.5, 0.5, 0), _law(0, 0.5, 0.5)), 0.5),
        ("a token with both laws at 0: p = .6 .4 0, q = .1 .9 0", (_law(0.6, 0.4, 0), _law(0.1, 0.9, 0)), 0.5),
        ("no token in common", (_law(1, 0), _law(0, 1)), 0.0),
    ]
    wrong = [
        (
            "the ratio was taken of two zeros (0/0 is NaN), which min(p, q) avoids",
            lambda p, q: sum(b * r for r, (_, b) in zip(ratios(p, q), _both(p, q), strict=True)),
        ),
        ("this is the chance that the guess is rejected", lambda p, q: 1 - walk(p, q)),
        (
            "the sum of the differences was not halved; and 1 - sum |p - q| / 2 is the overlap",
            lambda p, q: 1 - sum(abs(a - b) for a, b in _both(p, q)),
        ),
        (
            "the guesses were weighted by p, but they are drawn from q",
            lambda p, q: sum(a * r for r, (a, _) in zip(ratios(p, q), _both(p, q), strict=True)),
        ),
        (
            "min(1, p/q) was averaged over the tokens as if all were guessed equally often",
            lambda p, q: sum(ratios(p, q)) / len(p),
        ),
        ("min(1, p/q) was added up without how often each token is guessed", lambda p, q: sum(ratios(p, q))),
        (
            "this is the chance that two separate draws agree (exact match)",
            lambda p, q: sum(a * b for a, b in _both(p, q)),
        ),
        ("this is what the envelope keeps, 1 / max(p/q)", lambda p, q: 1 / max(a / b for a, b in _both(p, q) if b)),
    ]
    return _run(function, cases, wrong)


def _both(p, q) -> list[tuple[float, float]]:
    return list(zip(p.tolist(), q.tolist(), strict=True))


def check_residual(function: Callable) -> bool:
    """function(p, q) -> norm(max(0, p - q)) for each row; p itself where that has no mass."""

    def right(p, q):  # every token's lack, counted from what is kept
        lack = [a - (a if a < b else b) for a, b in zip(p, q, strict=True)]
        mass = math.fsum(lack)
        return [x / mass for x in lack] if mass > 0 else list(p)

    def scaled(part: Callable, otherwise: Callable = lambda p: [math.nan] * len(p)) -> Callable:
        def row(p, q):
            values = [part(a, b) for a, b in zip(p, q, strict=True)]
            return [x / sum(values) for x in values] if sum(values) else otherwise(p)

        return _by_row(row)

    def softmax(p, q):
        weights = [math.exp(max(0.0, a - b)) for a, b in zip(p, q, strict=True)]
        return [w / sum(weights) for w in weights]

    def over_all_rows(p, q):
        rest = [max(0.0, a - b) for a, b in zip(p.flatten().tolist(), q.flatten().tolist(), strict=True)]
        return [x / sum(rest) if sum(rest) else math.nan for x in rest]

    def lack(a, b):
        return max(0.0, a - b)

    p, q = _law(0.5, 0.3, 0.2), _law(0.2, 0.5, 0.3)
    r, s = _law(0.4, 0.1, 0.4, 0.1), _law(0.1, 0.3, 0.2, 0.4)
    near = _law(0.5 - 1e-8, 0.3, 0.2 + 1e-8)
    stack = torch.stack([p, _law(0.25, 0.5, 0.25), _law(0.2, 0.3, 0.5)])
    drafts = torch.stack([q, _law(0.25, 0.5, 0.25), _law(0.6, 0.2, 0.2)])
    answer = _by_row(right)
    cases = [
        ("p = .5 .3 .2, q = .2 .5 .3", (p, q), answer(p, q)),
        ("p = .4 .1 .4 .1, q = .1 .3 .2 .4", (r, s), answer(r, s)),
        ("q = p = .5 .3 .2, where nothing is lacking", (p.clone(), p.clone()), answer(p, p)),
        ("three laws at once, the second equal to its draft", (stack, drafts), answer(stack, drafts)),
        ("next to nothing is lacking: p = .5 .3 .2, q = p but for 1e-8", (p, near), [1.0, 0.0, 0.0]),
    ]
    wrong = [
        ("0 was divided by 0: where nothing is lacking, the answer is p", scaled(lack)),
        (
            "the 0/0 was only hidden: zeros are no law to draw from, the answer is p there",
            scaled(lack, lambda p: [0.0] * len(p)),
        ),
        (
            "equal chances were put where nothing is lacking; the answer is p",
            scaled(lack, lambda p: [1 / len(p)] * len(p)),
        ),
        (
            "the difference is not divided by its sum",
            _by_row(lambda p, q: [lack(a, b) for a, b in zip(p, q, strict=True)]),
        ),
        (
            "p was returned although a little is lacking: compare the sum with 0, not with a small number",
            _by_row(lambda p, q: list(p) if sum(map(lack, p, q)) < 1e-2 else right(p, q)),
        ),
        ("|p - q| was taken: tokens with more than their share get still more", scaled(lambda a, b: abs(a - b))),
        ("p and q are swapped: this is what the draft has too much of", scaled(lambda a, b: max(0.0, b - a))),
        ("softmax was used to scale: it gives mass to tokens that lack nothing", _by_row(softmax)),
        ("this is p, also where something is lacking: choose row by row", lambda p, q: p),
        ("the sum runs over all rows together; each row is a law of its own (dim -1)", over_all_rows),
    ]
    return _run(function, cases, wrong)


def check_law_of_mismatch(function: Callable) -> bool:
    """function(p, q, drawn) -> the law written when guesses come from `drawn` and the rule calculates with q."""

    def branches(p, q, drawn):  # every branch of the procedure: each guess, kept or replaced by each token
        lack = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
        mass = math.fsum(lack)
        rest = [x / mass for x in lack] if mass > 0 else p
        law = [0.0] * len(p)
        for x, chance in enumerate(drawn):
            stands = min(1.0, p[x] / q[x])
            law[x] += chance * stands
            for y, share in enumerate(rest):
                law[y] += chance * (1 - stands) * share
        return law

    def with_lists(f: Callable) -> Callable:
        return lambda p, q, d: f(p.tolist(), q.tolist(), d.tolist())

    def parts(p, q, d):
        kept = [c * min(1.0, a / b) for a, b, c in zip(p, q, d, strict=True)]
        lack = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
        return kept, [x / sum(lack) for x in lack]

    def only_kept(p, q, d):
        return parts(p, q, d)[0]

    def scaled_kept(p, q, d):
        kept = parts(p, q, d)[0]
        return [x / sum(kept) for x in kept]

    def unweighted(p, q, d):
        kept, rest = parts(p, q, d)
        return [a + b for a, b in zip(kept, rest, strict=True)]

    def believed_rejections(p, q, d):
        kept, rest = parts(p, q, d)
        rejected = 1 - sum(min(a, b) for a, b in zip(p, q, strict=True))
        return [a + rejected * b for a, b in zip(kept, rest, strict=True)]

    def residual_of_drawn(p, q, d):
        kept, lack = parts(p, q, d)[0], [max(0.0, a - b) for a, b in zip(p, d, strict=True)]
        return [a + (1 - sum(kept)) * x / sum(lack) for a, x in zip(kept, lack, strict=True)]

    def replaced_from_p(p, q, d):
        kept = parts(p, q, d)[0]
        return [a + (1 - sum(kept)) * b for a, b in zip(kept, p, strict=True)]

    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    r, s = [0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2]
    given = [
        ("no mismatch, drawn = q: the law is p", p, q, q),
        ("the likeliest guess, drawn = 0 1 0", p, q, [0.0, 1.0, 0.0]),
        ("top-2, drawn = 0 4/7 3/7 0 for q = .1 .4 .3 .2", r, s, [0.0, 4 / 7, 3 / 7, 0.0]),
        ("a guess without thought, drawn = 1/4 each", r, s, [0.25] * 4),
    ]
    cases = [(name, (_law(*a), _law(*b), _law(*c)), branches(a, b, c)) for name, a, b, c in given]
    wrong = [
        (
            "this is p: either `drawn` is not used, or it is also put where the rule has q (which does not know it)",
            with_lists(lambda p, q, d: list(p)),
        ),
        ("the residual is that of p and `drawn`; the rule only knows q", with_lists(residual_of_drawn)),
        (
            "the replacements of rejected guesses are missing: the numbers do not sum to 1",
            with_lists(only_kept),
        ),
        ("only accepted tokens are counted; rejected guesses are replaced too", with_lists(scaled_kept)),
        ("the residual is added whole: it only comes in when a guess is rejected", with_lists(unweighted)),
        (
            "rejections are counted as if guesses came from q; they come from `drawn`",
            with_lists(believed_rejections),
        ),
        ("the replacement is drawn from p, not from the residual of p and q", with_lists(replaced_from_p)),
    ]
    return _run(function, cases, wrong)


# --- notebook 04 ------------------------------------------------------------------------------------------------


def check_round_tokens(function: Callable) -> bool:
    """function(p, q, drafted, uniforms, v) -> the tokens that one round writes, v being the last draw's uniform."""

    def pick(law, v):  # the first token whose stretch of the line ends behind v
        total, end = math.fsum(law), 0.0
        for x, share in enumerate(law):
            end += share
            if v * total < end:
                return x
        return len(law) - 1

    def rest(a, b):
        lack = [max(0.0, x - y) for x, y in zip(a, b, strict=True)]
        return lack if sum(lack) > 0 else a

    def walk(
        p,
        q,
        x,
        u,
        v,
        stands=lambda a, b, u: u * b < a,  # the chance that a token stands is a/b: no division needed
        replace=rest,
        bonus=-1,
        own=True,
        uniform=lambda u, t: u[t],
    ):
        p, q, x, u, v = (value.tolist() for value in (p, q, x, u, v))
        for t, guess in enumerate(x):
            if not stands(p[t][guess], q[t][guess], uniform(u, t)):
                return x[:t] + ([pick(replace(p[t], q[t]), v)] if own else [])
        return x if bonus is None or not own else [*x, pick(p[bonus], v)]

    def goes_on(p, q, x, u, v):
        kept = [t for t in range(len(x)) if float(u[t] * q[t, x[t]]) < float(p[t, x[t]])]
        rejected = [t for t in range(len(x)) if t not in kept]
        law = rest(p[rejected[0]].tolist(), q[rejected[0]].tolist()) if rejected else p[-1].tolist()
        return [int(x[t]) for t in kept] + [pick(law, float(v))]

    def never_ends(p, q, x, u, v, last: bool):
        written = []
        for t, guess in enumerate(x.tolist()):
            stands = float(u[t] * q[t, guess]) < float(p[t, guess])
            written.append(guess if stands else pick(rest(p[t].tolist(), q[t].tolist()), float(v)))
        return [*written, pick(p[-1].tolist(), float(v))] if last else written

    def keeps_the_fallen(p, q, x, u, v):
        written = walk(p, q, x, u, v)
        n = len(written) - 1
        return written if n == len(x) else [*written[:n], int(x[n]), written[n]]

    def row_before(p, q, x, u, v):
        n = len(walk(p, q, x, u, v)) - 1
        if n == len(x):
            return walk(p, q, x, u, v)
        return [*x[:n].tolist(), pick(rest(p[n - 1].tolist(), q[n - 1].tolist()), float(v))]

    def law(*rows):
        return torch.tensor(rows, dtype=torch.float64)

    p = law([0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4], [0.1, 0.6, 0.3], [0.5, 0.3, 0.2])
    q = law([0.2, 0.5, 0.3], [0.2, 0.5, 0.3], [0.3, 0.6, 0.1], [0.4, 0.5, 0.1])
    x = torch.tensor([0, 2, 1, 0])
    barred = law([0.0, 0.6, 0.4], [0.2, 0.2, 0.6])

    def case(name, p, q, drafted, uniforms, v):
        arguments = (p, q, torch.tensor(drafted), law(*uniforms), torch.tensor(v, dtype=torch.float64))
        return name, arguments, walk(*arguments)

    cases = [
        case("one guess that stands, then the bonus", p[:2], q[:1], [0], [0.9], 0.6),
        case("one guess that falls", p[2:4], q[2:3], [1], [0.7], 0.35),
        case("the notebook's draft a c b a", p, q, x.tolist(), [0.9, 0.4, 0.7, 0.1], 0.35),
        case("the same draft, all four stand", p, q, x.tolist(), [0.9, 0.4, 0.3, 0.1], 0.75),
        case(
            "the same draft, the first guess stands and the second falls", p, q, x.tolist(), [0.3, 0.8, 0.2, 0.1], 0.9
        ),
        case("the same draft, the last guess falls", p, q, x.tolist(), [0.2, 0.1, 0.4, 0.3], 0.1),
        case("a guess with p = 0 and a uniform of exactly 0", barred, law([0.5, 0.25, 0.25]), [0], [0.0], 0.5),
        case("nothing drafted", p[:1], q[:0], [], [], 0.6),
    ]
    wrong = [
        ("guesses behind the rejection are kept; they continue a text that does not exist", goes_on),
        ("the rejected guess is kept beside its replacement", keeps_the_fallen),
        ("the round goes on after a rejection: it ends there", lambda *a: never_ends(*a, last=True)),
        ("the round goes on after a rejection, and has no bonus", lambda *a: never_ends(*a, last=False)),
        ("the accepted guesses are missing: they are text too", lambda *a: walk(*a)[-1:]),
        ("the token of the target's own is missing, replacement or bonus", lambda *a: walk(*a, own=False)),
        ("the bonus is missing: when all stand, the last row of p is still unused", lambda *a: walk(*a, bonus=None)),
        (
            "the bonus is drawn from the last guess's law; it stands behind it, in the last row",
            lambda *a: walk(*a, bonus=-2),
        ),
        ("the replacement is drawn from p; it comes from the residual", lambda *a: walk(*a, replace=lambda a, b: a)),
        (
            "the replacement is drawn from q; it comes from the residual",
            lambda *a: walk(*a, replace=lambda a, b: b),
        ),
        (
            "the residual is the wrong way round: it is what the target has and the draft lacks",
            lambda *a: walk(*a, replace=lambda a, b: rest(b, a)),
        ),
        ("the residual is taken one place too early", row_before),
        ("the ratio is upside down: it is p/q", lambda *a: walk(*a, stands=lambda a, b, u: u * a < b)),
        (
            "a tie accepts: with a uniform of 0 a token that the target forbids is written; compare strictly",
            lambda *a: walk(*a, stands=lambda a, b, u: u * b <= a),
        ),
        ("one uniform judges all guesses; each place has its own", lambda *a: walk(*a, uniform=lambda u, t: u[0])),
        ("guesses are compared with p instead of p/q", lambda *a: walk(*a, stands=lambda a, b, u: u < a)),
        ("accept and reject are swapped", lambda *a: walk(*a, stands=lambda a, b, u: not u * b < a)),
    ]

    def flat(*arguments):  # sl.draw gives a tensor of one token: as good as the token
        got = function(*arguments)
        return [int(t) for t in got] if isinstance(got, list | tuple) else got

    return _run(flat, cases, wrong)


def check_greedy_tokens(function: Callable) -> bool:
    """function(best, drafted) -> the tokens that a greedy round writes; best has one token more than drafted."""

    def one_hot(best, drafted):  # the general rule, on one-hot laws: ratio 1 or 0, residual the target's choice
        written = []
        for b, x in zip(best, drafted, strict=False):
            if x != b:
                return [*written, b]
            written.append(x)
        return [*written, best[len(drafted)]]

    def agreeing(best, drafted):
        return [x for b, x in zip(best, drafted, strict=False) if x == b]

    def count(best, drafted):
        return len(one_hot(best, drafted)) - 1

    pairs = {
        "two guesses, the second is off": ([5, 7, 3], [5, 6]),
        "all three guesses agree": ([5, 7, 3, 8], [5, 7, 3]),
        "the first of three is off, the others agree": ([5, 7, 3, 8], [4, 7, 3]),
        "agree, off, agree": ([5, 7, 3, 8], [5, 9, 3]),
        "nothing drafted": ([6], []),
        "four guesses, token 0 among them": ([0, 0, 4, 1, 2], [0, 0, 4, 0]),
    }
    cases = [(name, (list(b), list(x)), one_hot(b, x)) for name, (b, x) in pairs.items()]
    wrong = [
        ("the target's own token is missing", lambda b, x: one_hot(b, x)[:-1]),
        ("the bonus is missing: when all agree, the last of best is written too", lambda b, x: one_hot(b, x)[: len(x)]),
        (
            "guesses that agree behind the first that is off are counted too",
            lambda b, x: [*x[: len(agreeing(b, x))], b[len(agreeing(b, x))]],
        ),
        ("guesses behind the first that is off are kept", lambda b, x: [*agreeing(b, x), b[len(agreeing(b, x))]]),
        (
            "what is added is always the last of best; where a guess fell, it is the target's choice there",
            lambda b, x: [*one_hot(b, x)[:-1], b[-1]],
        ),
        ("the guess that fell is written, not the target's choice", lambda b, x: [*x[: count(b, x) + 1]]),
        ("this is how many guesses stand, not the tokens", lambda b, x: count(b, x)),
        (
            "every choice of the target is written; those behind a wrong guess belong to another text",
            lambda b, x: list(b),
        ),
    ]
    return _run(function, cases, wrong)


def check_tokens_without_bonus(function: Callable) -> bool:
    """function(alpha, gamma) -> mean tokens of a round without a bonus, each guess standing with alpha."""

    def average(alpha, gamma, tokens: Callable):  # over all 2^gamma verdicts, each with its probability
        total = 0.0
        for verdicts in itertools.product((True, False), repeat=gamma):
            n = next((t for t, stood in enumerate(verdicts) if not stood), gamma)
            total += math.prod(alpha if stood else 1 - alpha for stood in verdicts) * tokens(n, gamma)
        return total

    def right(alpha, gamma):
        return average(alpha, gamma, lambda n, k: n + 1 if n < k else k)

    numbers = [(0.7, 2), (0.7, 4), (0.7, 1), (0.5, 3), (0.0, 4), (1.0, 4)]
    notes = {(0.7, 1): ", one guess", (0.0, 4): ", nothing ever stands", (1.0, 4): ", everything stands"}
    cases = [(f"alpha = {a}, gamma = {k}{notes.get((a, k), '')}", (a, k), right(a, k)) for a, k in numbers]
    wrong = [
        ("this is with the bonus", lambda a, k: average(a, k, lambda n, k: n + 1)),
        (
            "only guesses that stood are counted; a rejected one is replaced, and that is a token too",
            lambda a, k: average(a, k, lambda n, k: n),
        ),
        ("this is what is lost, not what is left", lambda a, k: a**k),
        (
            "guesses are counted as if a rejection did not end the round",
            lambda a, k: a * k,
        ),
        ("the loss is alpha^gamma, the chance that all gamma stand", lambda a, k: right(a, k) + a**k - a),
        (
            "the closed form divides by 1 - alpha, which is 0 here; a sum needs no division",
            lambda a, k: math.nan if a == 1 else right(a, k),
        ),
        (
            "the value at alpha = 1 is off: there every round writes gamma tokens",
            lambda a, k: 1 if a == 1 else right(a, k),
        ),
        (
            "the value at alpha = 1 is off: there every round writes gamma tokens",
            lambda a, k: 0 if a == 1 else right(a, k),
        ),
    ]
    return _run(function, cases, wrong)


# --- notebook 05 ------------------------------------------------------------------------------------------------


def check_accepted_count(function: Callable) -> bool:
    """function(mask) -> verdicts before the first False, (k,) -> () or (rows, k) -> (rows,), without looking."""

    def count(mask, how):
        rows = mask.tolist() if mask.ndim == 2 else [mask.tolist()]
        return [how(row) for row in rows]

    def first(row: Sequence[bool]) -> int:
        return next((i for i, verdict in enumerate(row) if not verdict), len(row))

    def columns(mask) -> list[int]:
        rows = mask.tolist() if mask.ndim == 2 else [[verdict] for verdict in mask.tolist()]
        return [sum(all(row[j] for row in rows[: i + 1]) for i in range(len(rows))) for j in range(len(rows[0]))]

    T, F = True, False
    masks = {
        "accept, reject, accept, accept, reject": [T, F, T, T, F],
        "reject, accept, accept": [F, T, T],
        "four times accept": [T, T, T, T],
        "accept, accept, reject, accept, accept": [T, T, F, T, T],
        "two rows of three": [[T, T, F], [F, T, T]],
        "three rows of three": [[T, T, T], [F, F, T], [T, F, T]],
    }
    cases = [(name, (m := torch.tensor(mask),), count(m, first)) for name, mask in masks.items()]
    wrong = [
        (
            "accepts behind the first rejection are counted: the sum of the mask is not the count",
            lambda m: count(m, sum),
        ),
        (
            "a row without a rejection has no first False to be found, and must count all its tokens",
            lambda m: count(m, lambda row: first(row) % len(row)),
        ),
        (
            "only the first verdict is looked at: one accepted token does not make all of them stand",
            lambda m: count(m, lambda row: len(row) * row[0]),
        ),
        (
            "everything up to the last accepted token is counted, rejections included",
            lambda m: count(m, lambda row: max((i + 1 for i, v in enumerate(row) if v), default=0)),
        ),
        ("the first rejected token is counted too", lambda m: count(m, lambda row: min(first(row) + 1, len(row)))),
        ("the counts of all rows are added up; each row has its own", lambda m: [sum(count(m, first))]),
        (
            "it is summed over all rows, without an end to each row's accepts: one count a row, up to its first False",
            lambda m: [m.sum().item()] if m.ndim == 2 else count(m, first),
        ),
        ("the product runs down the columns; the tokens of one draft lie along a row", columns),
    ]
    if not _run(function, cases, wrong):
        return False
    asked = _questions(function, cases[3][1])
    if asked:
        print(
            f"One thing is left: it reads values one by one\n  yours     {asked} questions to the device\n"
            "  expected  none\n  Hint: a loop with an `if` in it, or an int(), asks the device: stay with tensors."
        )
    return not asked


def _questions(function: Callable, arguments: tuple) -> int:
    """How often a call asks tensors for their values; on a GPU the host would wait each time."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    asked = []

    class Scalars(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._local_scalar_dense.default or func is torch.ops.aten.nonzero.default:
                asked.append(func)
            return func(*args, **(kwargs or {}))

    class Transfers(TorchFunctionMode):  # which a CPU does without an operation
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") in ("tolist", "numpy", "cpu"):
                asked.append(func)
            return func(*args, **(kwargs or {}))

    with Scalars(), Transfers():
        function(*arguments)
    return len(asked)


def check_lenient_acceptance(function: Callable) -> bool:
    """function(p, q, lenience) -> share of drafted tokens that stand when u < p / (lenience q) accepts."""

    def share(p, q, lenience):
        pairs = zip(p.tolist(), q.tolist(), strict=True)
        return sum(b * min(1.0, a / (lenience * b)) for a, b in pairs if b > 0)

    def total(p, q, how):
        return sum(how(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True))

    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    a, b = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.1, 0.2, 0.7])
    c, d = torch.tensor([0.5, 0.0, 0.5, 0.0]), torch.tensor([0.0, 0.75, 0.25, 0.0])
    cases = [
        ("p = .5 .3 .2, q = .2 .5 .3, l = 1: the strict rule", (p, q, 1.0), share(p, q, 1.0)),
        ("p = .6 .3 .1, q = .1 .2 .7, l = .3", (a, b, 0.3), share(a, b, 0.3)),
        ("p = .6 .3 .1, q = .1 .2 .7, l = .5", (a, b, 0.5), share(a, b, 0.5)),
        ("p = .5 0 .5 0, q = 0 .75 .25 0, l = .5", (c, d, 0.5), share(c, d, 0.5)),
    ]
    wrong = [
        (
            "min(p, l q) is summed: the draft draws from q, not from l q; the lenient share is larger, not smaller",
            lambda p, q, x: total(p, q, lambda a, b: min(a, x * b)),
        ),
        (
            "the whole overlap is divided by l and capped at 1: the cap is q(x), token by token",
            lambda p, q, x: min(1.0, total(p, q, min) / x),
        ),
        ("the overlap is divided by l and not capped at all", lambda p, q, x: total(p, q, min) / x),
        (
            "p / l is capped at 1: a token cannot stand more often than it is drafted, q(x)",
            lambda p, q, x: total(p, q, lambda a, b: min(1.0, a / x)),
        ),
        (
            "tokens are weighted with p: it is the draft that proposes them, with q",
            lambda p, q, x: total(p, q, lambda a, b: a * min(1.0, a / (x * b)) if b > 0 else a),
        ),
        ("p is multiplied by l: that makes the rule stricter", lambda p, q, x: total(p, q, lambda a, b: min(a * x, b))),
        ("the lenience is not used: this is the strict rule's share", lambda p, q, x: total(p, q, min)),
        (
            "0 / 0 is summed: where q is 0 nothing is drafted, so multiply q into the minimum first",
            lambda p, q, x: float("nan") if ((p == 0) & (q == 0)).any() else -1.0,
        ),
    ]

    return _run(function, cases, wrong)


def check_in_chens_letters(function: Callable) -> bool:
    """function(q, p, drafted, r) -> (tokens by which the text grows, law of the last); q is the target, p the draft."""

    def norm(weights):
        return [w / sum(weights) for w in weights] if sum(weights) > 0 else weights

    def plus(a, b):
        return norm([max(0.0, x - y) for x, y in zip(a, b, strict=True)])

    def loop(q, p, drafted, r, rest=plus, bonus=-1, more=1):  # the paper's loop, on lists
        q, p = q.tolist(), p.tolist()
        for t, (x, u) in enumerate(zip(drafted.tolist(), r.tolist(), strict=False)):
            if not (p[t][x] == 0 or u < q[t][x] / p[t][x]):
                return [t + more, *rest(q[t], p[t])]
        return [len(p) + more, *q[bonus]]

    def unswapped(q, p, drafted, r):
        rows = r.new_zeros(len(drafted))
        rows[: len(r)] = r
        return loop(torch.cat([p, q[-1:]]), q[:-1], drafted, rows)

    def in_front(q, p, drafted, r):
        return loop(q, p, drafted, torch.cat([r.new_zeros(len(drafted) - len(r)), r]))

    q = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5], [0.125, 0.25, 0.625]])
    p = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [0.5, 0.375, 0.125]])
    two, three = torch.tensor([0, 1]), torch.tensor([0, 0, 2])
    greedy = torch.eye(3)
    cases = [
        ("K = 2, both accepted", (q[:3], p[:2], two, torch.tensor([0.75, 0.875]))),
        ("K = 2, the second rejected", (q[:3], p[:2], torch.tensor([0, 0]), torch.tensor([0.75, 0.5]))),
        ("K = 3, the second rejected: r holds two numbers", (q, p, three, torch.tensor([0.75, 0.375]))),
        ("K = 3, the first rejected: r holds one", (q, p, torch.tensor([1, 1, 2]), torch.tensor([0.625]))),
        ("K = 3, all accepted", (q, p, torch.tensor([0, 1, 2]), torch.tensor([0.875, 0.5, 0.25]))),
        (
            "a tie at probability 0, which must reject",
            (greedy[[1, 2]], greedy[[0]] / 2 + greedy[[1]] / 2, torch.tensor([0]), torch.tensor([0.0])),
        ),
    ]
    cases = [(name, arguments, loop(*arguments)) for name, arguments in cases]
    wrong = [
        (
            "the accepted tokens are counted; the text also grows by the replacement or the bonus token",
            lambda *a: loop(*a, more=0),
        ),
        ("the missing uniforms were put in front: r belongs to the first drafted tokens", in_front),
        ("the letters are not swapped: here q is the target and p the draft", unswapped),
        (
            "the residual is the wrong way round: draw what the target has and the draft lacks, (q - p)+",
            lambda *a: loop(*a, rest=lambda q, p: plus(p, q)),
        ),
        ("after a rejection the target's law itself is returned, not the residual", lambda *a: loop(*a, rest=_first)),
        (
            "the bonus token's law is taken one row too early: it is the target's last row, number K + 1",
            lambda *a: loop(*a, bonus=-2),
        ),
    ]

    def flat(*arguments):
        found = function(*arguments)
        if found is None or found is Ellipsis:
            return None
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            return found
        grown, law = found
        return [float(grown), *torch.as_tensor(law, dtype=torch.float64).flatten().tolist()]

    return _run(flat, cases, wrong)


def _first(a, b):
    return a


# --- notebook 06 ------------------------------------------------------------------------------------------------


def _tapes(drafted: list[int], n: int, token: int) -> tuple[list[int], list[int], list[int]]:
    """One round on lists: the text that it adds, and what target and draft have read of it, right or wrong."""
    return [*drafted[:n], token], list(drafted), list(drafted[:-1])


def _still_text(tape: list[int], text: list[int]) -> int:
    """How many tokens at the beginning of the tape are text."""
    kept = 0
    while kept < min(len(tape), len(text)) and tape[kept] == text[kept]:
        kept += 1
    return kept


def check_trims(function: Callable) -> bool:
    """function(gamma, n) -> (tokens to cut from the target's cache, from the draft's)."""

    def cut(gamma, n):
        text, target, draft = _tapes(list(range(gamma)), n, -1)
        return [len(tape) - _still_text(tape, text) for tape in (target, draft)]

    cases = [
        ("gamma 4, 1 accepted", (4, 1), cut(4, 1)),
        ("gamma 4, none accepted", (4, 0), cut(4, 0)),
        ("gamma 4, 3 accepted", (4, 3), cut(4, 3)),
        ("gamma 4, all accepted", (4, 4), cut(4, 4)),
        ("gamma 1, none accepted", (1, 0), cut(1, 0)),
        ("gamma 1, all accepted", (1, 1), cut(1, 1)),
        ("gamma 8, 3 accepted", (8, 3), cut(8, 3)),
    ]
    wrong = [
        (
            "the draft is cut as much as the target; it never read its own last token, so it has one less to lose",
            lambda g, n: (g - n, g - n),
        ),
        (
            "the draft is cut by a negative number after a full acceptance: there is nothing to cut",
            lambda g, n: (g - n, g - 1 - n),
        ),
        ("the two are swapped: the target is the first", lambda g, n: (max(g - 1 - n, 0), g - n)),
        (
            "one cut too many: the token that the target added was never read by anyone",
            lambda g, n: (g + 1 - n, g - n),
        ),
        ("this is how much stays, not how much is cut", lambda g, n: (n, min(n, g - 1))),
    ]
    return _run(function, cases, wrong)


def check_pending_for_draft(function: Callable) -> bool:
    """function(drafted, n, token) -> the ids that the draft has to read first in the next round."""

    def unread(drafted, n, token):
        text, _, tape = _tapes(drafted, n, token)
        return text[_still_text(tape, text) :]

    cases = [
        (f"drafted {d}, {n} accepted, then {t}", (d, n, t), unread(d, n, t))
        for d, n, t in (
            ([11, 12, 13, 14], 2, 99),
            ([11, 12, 13, 14], 0, 99),
            ([11, 12, 13, 14], 3, 99),
            ([11, 12, 13, 14], 4, 99),
            ([21], 0, 98),
            ([21], 1, 98),
        )
    ]
    wrong = [
        (
            "the draft's own last token is forgotten after a full acceptance: it was never fed to the draft",
            lambda d, n, t: [t],
        ),
        (
            "the last accepted token is fed again: the draft has read every drafted token but its last",
            lambda d, n, t: [*d[max(n - 1, 0) : n], t],
        ),
        (
            "all accepted tokens are fed again: they are in the cache already",
            lambda d, n, t: [*d[:n], t],
        ),
        (
            "the draft's last token is fed also where it was rejected",
            lambda d, n, t: [d[-1], t],
        ),
        (
            "the rejected token is fed: it is no part of the text",
            lambda d, n, t: [*d[n : n + 1], t],
        ),
        ("the two are in the wrong order: the draft token stands before the bonus", lambda d, n, t: [t, *d[n - 1 :]]),
        ("the bonus token is missing", lambda d, n, t: [d[-1]]),
    ]
    return _run(function, cases, wrong)


def check_fed_in_round(function: Callable) -> bool:
    """function(size, gamma, cached, after_full) -> positions that target and draft read in one round."""

    def count(size, gamma, cached, after_full):
        text = list(range(size))
        tapes = {"target": size - 1, "draft": size - 1 - after_full}  # read before
        fed = {"target": 0, "draft": 0}

        def read(model):
            fed[model] += len(text) - (tapes[model] if cached else 0)
            tapes[model] = len(text)

        for i in range(gamma):
            read("draft")
            text.append(size + i)
        read("target")
        return [fed["target"], fed["draft"]]

    cases = [
        ("text of 10, gamma 4, with caches", (10, 4, True, False), count(10, 4, True, False)),
        (
            "text of 10, gamma 4, with caches, after a full acceptance",
            (10, 4, True, True),
            count(10, 4, True, True),
        ),
        ("text of 10, gamma 1, without caches", (10, 1, False, False), count(10, 1, False, False)),
        ("text of 10, gamma 4, without caches", (10, 4, False, False), count(10, 4, False, False)),
        (
            "text of 1000, gamma 4, without caches, after a full acceptance",
            (1000, 4, False, True),
            count(1000, 4, False, True),
        ),
    ]
    wrong = [
        (
            "the target does not read the text's last token: it needs the law behind it too, so gamma + 1",
            lambda s, g, c, f: (g, g + f) if c else (s + g - 1, count(s, g, c, f)[1]),
        ),
        (
            "the draft reads its own last token: nobody asks it what follows",
            lambda s, g, c, f: (g + 1, g + 1) if c else (s + g, sum(s + i for i in range(g + 1))),
        ),
        (
            "the debt after a full acceptance is forgotten: the draft then reads two tokens in its first pass",
            lambda s, g, c, f: (g + 1, g) if c else count(s, g, c, f),
        ),
        (
            "the debt is the draft's alone: the target is never one short",
            lambda s, g, c, f: (g + 1 + f, g + f) if c else count(s, g, c, f),
        ),
        (
            "without a cache each draft pass reads a text that has grown by one",
            lambda s, g, c, f: (s + g, s * g) if not c else count(s, g, c, f),
        ),
        (
            "without a cache nothing is remembered, so there is no debt either",
            lambda s, g, c, f: (s + g, sum(s + i for i in range(g)) + f) if not c else count(s, g, c, f),
        ),
    ]
    return _run(function, cases, wrong)


# --- notebook 02 ------------------------------------------------------------------------------------------------


def check_cost_per_kept_token(function: Callable) -> bool:
    """function(fixed, each, draft, gamma, kept) -> milliseconds of one round for each token that it keeps."""

    def bill(fixed, each, draft, gamma, kept, read=None, drafted=None, passes=1):
        items = [float(fixed)] * passes  # one pass of the target ...
        items += [float(each)] * (gamma + 1 if read is None else read)  # ... and every token in it
        items += [float(draft)] * (gamma if drafted is None else drafted)
        return sum(items) / kept

    arguments = [
        ("gamma 4, all five tokens kept", (20, 1, 2, 4, 5)),
        ("gamma 4, two tokens kept", (20, 1, 2, 4, 2)),
        ("gamma 4, one token kept", (20, 1, 2, 4, 1)),
        ("gamma 1, two tokens kept", (20, 1, 5, 1, 2)),
        ("gamma 0: no draft at all", (20, 1, 2, 0, 1)),
        ("a machine without a flat part", (1, 20, 2, 4, 3)),
    ]
    wrong = [
        (
            "the time is shared out over all tokens that were read; only those that were kept are text",
            lambda f, e, d, g, k: bill(f, e, d, g, g + 1),
        ),
        ("the draft's time is missing: it makes gamma passes", lambda f, e, d, g, k: bill(f, e, d, g, k, drafted=0)),
        (
            "the pass reads gamma + 1 tokens, the last token of the text and the drafted ones",
            lambda f, e, d, g, k: bill(f, e, d, g, k, read=g),
        ),
        (
            "the draft makes gamma passes, one for each token that it guesses",
            lambda f, e, d, g, k: bill(f, e, d, g, k, drafted=g + 1),
        ),
        (
            "only the kept tokens are paid for; a rejected guess has been read as well",
            lambda f, e, d, g, k: bill(f, e, d, g, k, read=k),
        ),
        (
            "the fixed part is paid for each token; it is paid once a pass",
            lambda f, e, d, g, k: bill(f, e, d, g, k, passes=g + 1),
        ),
        ("this is the whole round; divide it by the tokens kept", lambda f, e, d, g, k: bill(f, e, d, g, 1)),
    ]
    return _run(function, [(name, a, bill(*a)) for name, a in arguments], wrong)


def check_median_and_spread(function: Callable) -> bool:
    """function(times, warm_up) -> (median, range of the middle half), the first warm_up times left out."""

    def middle(times):  # the smallest number that has as many below it as above, or half way between two such
        ranked = sorted(times)
        while len(ranked) > 2:
            ranked = ranked[1:-1]
        return sum(ranked) / len(ranked)

    def spread(times, cut=None):
        ranked = sorted(times)
        for _ in range(len(times) // 4 if cut is None else cut):
            ranked = ranked[1:-1]
        return ranked[-1] - ranked[0]

    def right(times, warm_up):
        return [middle(times[warm_up:]), spread(times[warm_up:])]

    arguments = [
        ("nine runs, one of them a warm-up", ([60.0, 25.0, 20.0, 140.0, 22.0, 19.0, 26.0, 21.0, 23.0], 1)),
        ("no warm-up, one bad run", ([20.0, 21.0, 140.0, 20.0, 22.0, 24.0, 21.0], 0)),
        ("a fast first run", ([1.0, 1.0, 9.0, 7.0, 8.0, 10.0, 7.5], 2)),
        ("three runs: nothing to cut off", ([5.0, 3.0, 4.0], 0)),
        ("one run: no spread", ([9.0, 4.0], 1)),
    ]

    def ordered(times, w, cut=None):  # the warm-up taken from the sorted times
        ranked = sorted(times)[w:]
        return [middle(ranked), spread(ranked, cut)]

    def late(times, w):  # the upper one of two middle times
        kept = sorted(times[w:])
        return [kept[len(kept) // 2], spread(kept)]

    def deviation(values):
        mean = sum(values) / len(values)
        return (sum((x - mean) ** 2 for x in values) / max(len(values) - 1, 1)) ** 0.5

    def variants(centre, width, first=lambda times, w: times[w:]):
        return lambda times, w: [centre(first(times, w)), width(first(times, w))]

    wrong = [
        ("the warm-up is counted too", variants(middle, spread, lambda times, w: times)),
        ("the warm-up was taken from the sorted times: leave out the first runs, not the fastest", ordered),
        (
            "the last runs are left out; the warm-up is at the beginning",
            variants(middle, spread, lambda times, w: times[: len(times) - w]),
        ),
        (
            "the first number is the mean, which one bad run can carry away",
            lambda times, w: [_mean(times[w:]), right(times, w)[1]],
        ),
        ("of an even number of times, the median lies half way between the two in the middle", late),
        (
            "the spread is that of all runs; cut a quarter of them off at each end first",
            variants(middle, lambda values: max(values) - min(values)),
        ),
        ("the second number is a standard deviation, which one bad run can carry away", variants(middle, deviation)),
        (
            "a quarter is cut off in all; cut a quarter at each end",
            variants(middle, lambda values: spread(values, len(values) // 8)),
        ),
    ]

    def flat(times, warm_up):
        found = function(times, warm_up)
        if found is None or found is Ellipsis:
            return None
        return [float(x) for x in found] if isinstance(found, (tuple, list)) else found

    return _run(flat, [(name, a, right(*a)) for name, a in arguments], wrong)


def check_knee(function: Callable) -> bool:
    """function(v, factor) -> the largest n up to which no pass in the table costs more than factor times v[1]."""

    def right(v, factor):
        best = None
        for n in sorted(v):
            if any(v[m] > factor * v[1] for m in v if m <= n):
                break
            best = n
        return best

    arguments = [
        ("20 ms and 1 ms a token", ({n: 20.0 + n for n in (1, 2, 4, 8, 16, 32, 64)}, 2.0)),
        ("the same table, factor 1.25", ({n: 20.0 + n for n in (1, 2, 4, 8, 16, 32, 64)}, 1.25)),
        ("a pass that costs exactly twice as much", ({1: 10.0, 2: 15.0, 4: 20.0, 8: 35.0}, 2.0)),
        ("1 ms and 20 ms a token: no flat part", ({n: 1.0 + 20 * n for n in (1, 2, 4, 8)}, 1.9)),
        ("a dip behind the knee", ({1: 10.0, 2: 12.0, 4: 15.0, 8: 26.0, 16: 19.0, 32: 50.0}, 2.0)),
        ("a table that is not in order", ({8: 18.0, 1: 10.0, 32: 40.0, 2: 11.0, 16: 30.0}, 2.0)),
        ("flat to its end", ({1: 10.0, 8: 10.5, 64: 12.0}, 2.0)),
    ]

    def unordered(v, factor):
        best = None
        for n in v:
            if v[n] > factor * v[1]:
                break
            best = n
        return best

    wrong = [
        (
            "this is the first n that costs too much; the knee is the last that does not",
            lambda v, f: next(n for n in sorted(v) if v[n] > f * v[1]),
        ),
        ("this is the time at the knee; its n is asked for", lambda v, f: v[right(v, f)]),
        (
            "times a token were compared, v[n] / n: they fall all the way; compare whole passes",
            lambda v, f: max(n for n in v if v[n] / n <= f * v[1]),
        ),
        (
            "n passes over one token were the measure, not one",
            lambda v, f: max(n for n in v if v[n] <= f * n * v[1]),
        ),
        ("a pass of exactly factor times v[1] still counts", lambda v, f: max(n for n in v if v[n] < f * v[1])),
        (
            "a dip behind the knee was taken: stop at the first pass that costs too much",
            lambda v, f: max(n for n in v if v[n] <= f * v[1]),
        ),
        ("the table was read in the order in which it stands; sort it by n", unordered),
    ]
    return _run(function, [(name, a, right(*a)) for name, a in arguments], wrong)


def check_bytes_read(function: Callable) -> bool:
    """function(layers, width, vocab, context, n, itemsize) -> bytes that a GPT-2 pass must fetch from memory."""

    def count(layers, width, vocab, context, n, itemsize, head=True, keys_and_values=2, inner=4):
        numbers = 0
        for _ in range(layers):
            shapes = [(width, 3 * width), (width, width), (width, inner * width), (inner * width, width)]
            shapes += [(context, width)] * keys_and_values
            numbers += sum(rows * columns for rows, columns in shapes)
        return itemsize * (numbers + (vocab * width if head else 0))

    arguments = [
        ("1 layer of width 2, 3 words, nothing cached, float32", (1, 2, 3, 0, 1, 4)),
        ("the same with 5 tokens cached", (1, 2, 3, 5, 1, 4)),
        ("the same, 4 tokens in the pass", (1, 2, 3, 5, 4, 4)),
        ("the same in 16 bit", (1, 2, 3, 5, 4, 2)),
        ("GPT-2 large behind 64 tokens, 5 in the pass", (36, 1280, 50257, 64, 5, 4)),
    ]
    wrong = [
        (
            "this counts numbers, not bytes: each takes itemsize bytes",
            lambda la, w, v, c, n, i: count(la, w, v, c, n, 1),
        ),
        (
            "the weights are fetched n times; one pass fetches them once, for all its tokens",
            lambda la, w, v, c, n, i: (n - 1) * count(la, w, v, 0, n, i) + count(la, w, v, c, n, i),
        ),
        ("all is fetched n times; a pass fetches it once", lambda la, w, v, c, n, i: n * count(la, w, v, c, n, i)),
        (
            "the head is missing: vocab x width weights turn the last layer into scores",
            lambda *a: count(*a, head=False),
        ),
        (
            "the vocabulary's table is counted twice; input and head share it, and the input looks up n rows only",
            lambda la, w, v, c, n, i: count(la, w, 2 * v, c, n, i),
        ),
        ("keys or values are missing: the cache holds both", lambda *a: count(*a, keys_and_values=1)),
        ("the cache is missing: a pass reads the keys and values behind it", lambda *a: count(*a, keys_and_values=0)),
        (
            "the cache is counted for one layer only: each layer has its own",
            lambda la, w, v, c, n, i: count(la, w, v, 0, n, i) + i * 2 * c * w,
        ),
        (
            "the new tokens are counted as cached: what was in memory before the pass is asked for",
            lambda la, w, v, c, n, i: count(la, w, v, c + n, n, i),
        ),
    ]
    return _run(function, [(name, a, count(*a)) for name, a in arguments], wrong)


# --- notebook 07 ------------------------------------------------------------------------------------------------

_WARD = (4, 6, 3, 1, 5, 2)  # the clinic: which of the six samplers patient A is, patient B, ...


def ward(samplers: Sequence) -> dict[str, object]:
    """Six samplers as patients A to F, in an order that the reader is to find out."""
    return {name: samplers[i - 1] for name, i in zip("ABCDEF", _WARD, strict=True)}


def check_law_of_asking_twice(function: Callable) -> bool:
    """function(p, q) -> law written when a guess stands if the target's own draw equals it, else p is drawn anew."""

    def walk(p, q):  # every guess, every first draw, every second draw
        law = [0.0] * len(p)
        for (x, b), (y, a) in itertools.product(enumerate(q.tolist()), enumerate(p.tolist())):
            if x == y:
                law[x] += b * a
                continue
            for z, again in enumerate(p.tolist()):
                law[z] += b * a * again
        return law

    def stood(p, q):
        return [a * b for a, b in _both(p, q)]

    def completed(kept, rest):
        return [k + (1 - sum(kept)) * r for k, r in zip(kept, rest, strict=True)]

    def lacking(p, q):
        rest = [max(0.0, a - b) for a, b in _both(p, q)]
        return [x / sum(rest) for x in rest]

    p, q = _law(0.5, 0.3, 0.2), _law(0.2, 0.5, 0.3)
    given = [
        ("p = .5 .3 .2, q = .2 .5 .3", p, q),
        ("p = .5 .5, a draft that is certain of the first: q = 1 0", _law(0.5, 0.5), _law(1, 0)),
        ("q = p = .5 .3 .2", p, p),
        ("a draft that is certain of a token with p = 0: p = .5 .5 0, q = 0 0 1", _law(0.5, 0.5, 0), _law(0, 0, 1)),
    ]
    cases = [(name, (a.clone(), b.clone()), walk(a, b)) for name, a, b in given]
    wrong = [
        ("the target's first draw was kept (exact match, which is right); this rule draws anew", lambda p, q: p),
        ("the second draw is missing: the numbers do not sum to 1", stood),
        (
            "only guesses that stood are counted, scaled to 1; where none stood a token is written too",
            lambda p, q: [x / sum(stood(p, q)) for x in stood(p, q)],
        ),
        (
            "the second draw is added whole: it is made only when the guess does not stand",
            lambda p, q: [x + a for x, a in zip(stood(p, q), p.tolist(), strict=True)],
        ),
        (
            "a guess stands with min(1, p/q) here; in this rule the target's own draw must hit it, with probability p",
            lambda p, q: completed([min(a, b) for a, b in _both(p, q)], p.tolist()),
        ),
        (
            "the second draw comes from the residual; this rule draws from p",
            lambda p, q: completed(stood(p, q), lacking(p, q)),
        ),
        ("the second draw comes from q; it is the target's", lambda p, q: completed(stood(p, q), q.tolist())),
        (
            "the chance that a guess falls is one number for all tokens, 1 - sum p q",
            lambda p, q: [x + (1 - x) * a for x, a in zip(stood(p, q), p.tolist(), strict=True)],
        ),
    ]
    return _run(function, cases, wrong)


def check_alarm_threshold(function: Callable) -> bool:
    """function(cells, z) -> mean + z standard deviations of a right sampler's chi-square statistic."""

    def right(cells, z):
        squares = [1.0] * (cells - 1)  # so many squared normal numbers: each of mean 1 and variance 2
        return math.fsum(squares) + z * math.sqrt(math.fsum(2 * x for x in squares))

    numbers = [(3, 2.326), (3, 0.0), (2, 1.0), (65, 3.09), (256, 3.09)]
    notes = {(3, 0.0): ": the mean alone"}
    cases = [(f"{c} cells, z = {z}{notes.get((c, z), '')}", (c, z), right(c, z)) for c, z in numbers]
    wrong = [
        ("the cells are taken for the degrees of freedom: there is one less", lambda c, z: right(c + 1, z)),
        ("z is multiplied by the variance; the standard deviation is its root", lambda c, z: c - 1 + z * 2 * (c - 1)),
        ("the variance is 2 d, not d", lambda c, z: c - 1 + z * math.sqrt(c - 1)),
        ("the mean is missing: a right sampler lies around d, not around 0", lambda c, z: right(c, z) - (c - 1)),
        ("the threshold lies below the mean: alarms are for large values", lambda c, z: right(c, -z)),
        ("the standard deviation is missing", lambda c, z: c - 1 + z),
    ]
    return _run(function, cases, wrong)


def check_runs_needed(function: Callable) -> bool:
    """function(power, wanted) -> the smallest number of runs whose power is at least wanted, in few calls."""

    def slope(n):
        return min(1.0, n / 1024)

    def step(first):
        return lambda n: 1.0 if n >= first else 0.0

    given = [  # the answer is known by construction
        ("power 0 below 37 runs, 1 from there on; wanted .5", step(37), 0.5, 37),
        ("power n/1024, wanted .25", slope, 0.25, 256),
        ("power n/1024, wanted .9", slope, 0.9, 922),
        ("one run is enough", step(1), 0.99, 1),
        ("two runs are enough", step(2), 0.99, 2),
        ("power 0 below 1,500,000 runs, 1 from there on; wanted .999", step(1_500_000), 0.999, 1_500_000),
    ]
    cases = [(name, (power, wanted), answer) for name, power, wanted, answer in given]

    def scan(power, wanted, enough=lambda a, b: a >= b, start=1):  # one after the other, as far as it is bearable
        return next(n for n in range(start, 3000) if enough(power(n), wanted))

    def doubled(power, wanted):
        n = 1
        while power(n) < wanted:
            n *= 2
        return n

    wrong = [
        ("the doubling stops at the first number that is enough; look between it and the one before", doubled),
        ("this is the largest number that is not enough", lambda f, w: scan(f, w) - 1),
        ("power equal to what is wanted is enough: compare with <", lambda f, w: scan(f, w, lambda a, b: a > b)),
        ("one run is never tried", lambda f, w: scan(f, w, start=2)),
        ("it is one too many", lambda f, w: scan(f, w) + 1),
        (
            "this is the largest number of doublings, not of runs",
            lambda f, w: math.log2(doubled(f, w)),
        ),
    ]
    if not _run(function, cases, wrong):
        return False
    calls = []
    function(lambda n: calls.append(n) or step(1_500_000)(n), 0.999)
    if len(calls) > 200:
        print(
            f"One thing is left: it takes its time\n  yours     {len(calls)} calls of power for 1,500,000 runs\n"
            "  expected  a few dozen\n  Hint: the numbers are tried one after the other: double, then halve."
        )
    return len(calls) <= 200


def check_diagnosis(function: Callable) -> bool:
    """function() -> six digits: which of the six samplers patients A to F are.  Says how many are right, not which."""
    try:
        got = function()
    except Exception as error:
        print(f"Not yet: the diagnosis raised {type(error).__name__}: {error}")
        return False
    if got is None or got is Ellipsis:
        print("Nothing returned yet: replace the placeholder, then run the cell and this check again.")
        return False
    digits = [int(c) for c in str(got) if c in "123456"]
    if sorted(digits) != [1, 2, 3, 4, 5, 6]:
        print(f"Not yet:\n  yours     {str(got)[:40]!r}\n  expected  the digits 1 to 6, each once, one a patient")
        print("  Hint: one digit for each of the patients A to F, in their order; none is left out, none stands twice.")
        return False
    if tuple(digits) == _WARD:
        print("Right, in all 6 cases.")
        return True
    mine = dict(zip(_WARD, digits, strict=True))  # true fault -> the reader's
    right = sum(a == b for a, b in mine.items())
    print(f"Not yet:\n  yours     {''.join(map(str, digits))}\n  expected  another order: {right} of yours are right")
    if {mine[1], mine[2]} != {1, 2}:
        mistake = "a patient whose guesses raise an alarm, or none of whose do, was taken for the other kind"
    elif mine[1] == 2:
        mistake = "the two whose guesses raise an alarm are swapped: an argmax gives one kind of token only"
    elif mine[6] != 6:
        mistake = "an ill patient was declared healthy: the healthy one raises no alarm and writes nothing forbidden"
    elif mine[4] != 4:
        mistake = "the wrong bonus was sought in a text that is wrong at once: it is right for gamma tokens"
    else:
        mistake = "3 and 5 are swapped: what is drawn after a rejection does not change how often first guesses stand"
    print(f"  Hint: {mistake}.")
    return False


# --- notebook 08 ------------------------------------------------------------------------------------------------


def _tokens_of(places: Sequence[float]) -> float:
    """Expected tokens of a round, verdict pattern by verdict pattern."""
    total = 0.0
    for pattern in itertools.product((True, False), repeat=len(places)):
        weight = math.prod(a if ok else 1 - a for a, ok in zip(places, pattern, strict=True))
        total += weight * (len(list(itertools.takewhile(bool, pattern))) + 1)
    return total


def check_tokens_from_places(function: Callable) -> bool:
    """function(places) -> expected tokens a target pass; places[i]: acceptance at place i + 1, once it is reached."""
    cases = [
        ("one guess, .7", ([0.7],)),
        ("two guesses, .9 and .6", ([0.9, 0.6],)),
        ("the same, .6 and .9", ([0.6, 0.9],)),
        ("the mixture of stretches: .7, .757, .806, .841", ([0.7, 0.757, 0.806, 0.841],)),
        ("the first guess never stands", ([0.0, 0.9, 0.9],)),
        ("every guess stands", ([1.0, 1.0, 1.0],)),
        ("no guess", ([],)),
    ]
    cases = [(name, arguments, _tokens_of(*arguments)) for name, arguments in cases]

    def reached(places):
        return [math.prod(places[:i]) for i in range(len(places) + 1)]

    wrong = [
        ("the token that the target adds is not counted", lambda a: sum(reached(a)) - 1),
        ("the chances are added as if every place were reached; multiply along the draft", lambda a: 1 + sum(a)),
        (
            "the mean of the places was put into the formula for one alpha: the order of the places matters",
            lambda a: sum(_mean(a) ** i for i in range(len(a) + 1)),
        ),
        ("the last guess is missing: a round can write one token more than it drafts", lambda a: sum(reached(a)[:-1])),
        (
            "only whole drafts are counted: those that fall half-way write tokens too",
            lambda a: 1 + len(a) * reached(a)[-1],
        ),
        (
            "each place's chance was raised to a power; multiply it with those of the places before it",
            lambda a: 1 + sum(x ** (i + 1) for i, x in enumerate(a)),
        ),
    ]
    return _run(function, cases, wrong)


def _gains(alpha: float, c: float, seconds: dict[int, float]) -> dict[int, float]:
    """Speed-up at each gamma for which the table says what the verification pass costs."""
    return {
        n - 1: _tokens_of([alpha] * (n - 1)) * seconds[1] / ((n - 1) * c * seconds[1] + seconds[n]) for n in seconds
    }


def check_gamma_from_table(function: Callable) -> bool:
    """function(alpha, c, seconds) -> the gamma of the largest speed-up, 0 where none pays; seconds[n]: a target pass
    over n tokens."""
    cpu = {n: 0.010 * (1 + 0.1075 * (n - 1)) for n in range(1, 10)}
    flat = {n: 0.050 for n in range(1, 10)}
    step = {1: 0.8, **{n: 1.0 for n in range(2, 10)}}
    gaps = {1: 0.02, 2: 0.025, 3: 0.027, 5: 0.028, 9: 0.06}
    steep = {n: 0.4 * n for n in range(1, 7)}
    cases = [
        ("alpha .7, c .077, a pass of 10 ms and a tenth more for each further token", (0.7, 0.077, cpu)),
        ("alpha .7, c .077, every pass 50 ms", (0.7, 0.077, flat)),
        ("alpha .8, c .1, the second token costs a quarter more, the others nothing", (0.8, 0.1, step)),
        ("alpha .9, c .1, measured at n = 1, 2, 3, 5, 9 only", (0.9, 0.1, gaps)),
        ("alpha .2, c .3, every pass 50 ms", (0.2, 0.3, flat)),
        ("alpha .5, c .1, n tokens cost n passes", (0.5, 0.1, steep)),
    ]

    def best(gains):
        return max(sorted(gains), key=lambda g: gains[g])

    cases = [(name, arguments, best(_gains(*arguments))) for name, arguments in cases]
    wrong = [
        (
            "every pass counts as one, as in the textbook; the table says what it costs",
            lambda a, c, v: best(_gains(a, c, dict.fromkeys(v, 1.0))),
        ),
        (
            "the pass is taken over gamma tokens; it also reads the last one of the text: gamma + 1",
            lambda a, c, v: best({g: _tokens_of([a] * g) / (g * c + v[g] / v[1]) if g else 1.0 for g in [0, *v]}),
        ),
        (
            "seconds and passes are mixed: c counts in passes over one token, so divide the table by its first entry",
            lambda a, c, v: best({n - 1: _tokens_of([a] * (n - 1)) / ((n - 1) * c + v[n]) for n in v}),
        ),
        ("the draft is free here; gamma of its passes cost gamma c", lambda a, c, v: best(_gains(a, 0.0, v))),
        (
            "plain decoding is not among the choices: where nothing pays, answer 0",
            lambda a, c, v: best({g: x for g, x in _gains(a, c, v).items() if g}),
        ),
        ("this gamma has the most tokens a pass, not the most a second", lambda a, c, v: max(v) - 1),
        ("this is the number of tokens in the pass; gamma is one less", lambda a, c, v: best(_gains(a, c, v)) + 1),
    ]
    return _run(function, cases, wrong)


def check_break_even_c(function: Callable) -> bool:
    """function(alpha, v) -> the largest c at which some gamma is no loss, 0 if there is none; v[n - 1]: cost of a pass
    over n tokens, in passes over one."""

    def limits(alpha, v):
        return [(_tokens_of([alpha] * g) - v[g]) / g for g in range(1, len(v))]

    cases = [
        ("alpha .7, every pass costs 1", (0.7, [1.0] * 6)),
        ("alpha .7, a tenth more for each further token", (0.7, [1.0, 1.1, 1.2, 1.3, 1.4])),
        ("alpha .8, a step at the second token", (0.8, [1.0, 1.4, 1.4, 1.4, 1.4, 1.4])),
        ("alpha .5, a step at the third token", (0.5, [1.0, 1.0, 2.0, 2.0])),
        ("alpha .3, n tokens cost n passes", (0.3, [1.0, 2.0, 3.0])),
    ]
    cases = [(name, arguments, max(0.0, *limits(*arguments))) for name, arguments in cases]
    wrong = [
        (
            "this is the textbook's answer, alpha: the longer pass was taken for free, or as if it read gamma tokens",
            lambda a, v: a,
        ),
        (
            "only gamma = 1 was tried; where the cost is a step, a longer draft shares it",
            lambda a, v: max(0, limits(a, v)[0]),
        ),
        (
            "this is what a whole round may cost; the round makes gamma draft passes",
            lambda a, v: max(0.0, *(x * g for g, x in enumerate(limits(a, v), 1))),
        ),
        (
            "the smallest limit was taken: you choose gamma, so the best one counts",
            lambda a, v: max(0.0, min(limits(a, v))),
        ),
        ("no draft costs less than nothing: answer 0 where nothing pays", lambda a, v: max(limits(a, v))),
        ("the most tokens a pass is not the best bargain", lambda a, v: max(0.0, limits(a, v)[-1])),
    ]
    return _run(function, cases, wrong)


def check_alpha_of_whole_rounds(function: Callable) -> bool:
    """function(rounds) -> acceptance rate over the judged guesses of the rounds that were not cut short."""

    def some(*rows):  # (drafted, accepted, what cut it)
        found = []
        for k, n, cut in rows:
            ended = cut == "eos"
            origin = None if ended else "plain" if k == 0 else "bonus" if n == k else "resampled"
            found.append(Round(torch.zeros(k, dtype=torch.int64), n, None if ended else 1, origin, cut=bool(cut)))
        return found

    def verdicts(rounds):  # one letter for each judged guess of a whole round
        return [x for r in rounds if not r.cut for x in "A" * r.accepted + "R" * (r.accepted < len(r.drafted))]

    cases = [
        ("three whole rounds, 2, 4 and 1 of 4 accepted", (some((4, 2, ""), (4, 4, ""), (4, 1, "")),)),
        (
            "two whole rounds, then a last one cut to one guess, which fell",
            (some((4, 2, ""), (4, 4, ""), (1, 0, "end")),),
        ),
        (
            "an end-of-text token among the accepted ones cut the last round",
            (some((4, 1, ""), (4, 0, ""), (4, 3, "eos")),),
        ),
        (
            "two texts in one list: a cut round stands in the middle",
            (some((4, 3, ""), (2, 0, "end"), (4, 4, ""), (4, 1, "")),),
        ),
        (
            "a text that ended with a whole round, and a round without a guess before it",
            (some((0, 0, "end"), (4, 2, "")),),
        ),
    ]
    cases = [(name, arguments, _mean(x == "A" for x in verdicts(*arguments))) for name, arguments in cases]

    def rate(rounds, rejected=lambda r: r.accepted < len(r.drafted)):
        kept = sum(r.accepted for r in rounds)
        return kept / (kept + sum(map(rejected, rounds)))

    def whole(rounds):
        return [r for r in rounds if not r.cut]

    wrong = [
        ("the rounds that were cut short are still in", rate),
        (
            "guesses behind a rejection count as rejected; nobody judged them",
            lambda rs: sum(r.accepted for r in whole(rs)) / sum(len(r.drafted) for r in whole(rs)),
        ),
        ("every round counts one rejection, also a full acceptance", lambda rs: rate(whole(rs), lambda r: 1)),
        ("the last round of the list is dropped, cut or not: ask r.cut", lambda rs: rate(rs[:-1])),
        (
            "only rounds with a rejection are counted, so the best ones are missing",
            lambda rs: rate([r for r in whole(rs) if r.rejected is not None]),
        ),
        (
            "the rates of the rounds were averaged: all judged guesses weigh the same, so add up first",
            lambda rs: _mean(rate([r]) for r in whole(rs) if len(r.drafted)),
        ),
    ]
    return _run(function, cases, wrong)


# --- notebook 09 ------------------------------------------------------------------------------------------------

# What the course found about each of `CLAIMS` (all are false), and the notebooks that show it.
SETTLED = (
    ("03", "alone they lean to what both models like; only with the replacements is the law p"),
    ("00, 05", "equal in law, not letter by letter; two rules given the same uniforms do write one text"),
    ("00, 08", "over judged ones: guesses behind a rejection were never tried"),
    ("05, 07", "wrong samplers write fluently too; only a test of the law can tell"),
    ("04, 06", "the law is the target's, whatever the draft; a worse one costs time"),
    ("04, 08", "they are reached less often; what happens once reached depends on pair and text"),
    ("08, 09", "often so, yet no law: acceptance is the overlap of two laws, which may fall as both get sharper"),
    ("08, 09", "each place more adds less, and costs as much as the one before"),
    ("06, 09", "both models read the prompt, and there is nothing to guess in it"),
    ("09", "it does more arithmetic for each token, and a busy machine has none to spare"),
)


def ask_again(answers: str, folder: str | Path | None = None) -> None:
    """Ask about `CLAIMS` once more: print each with the reader's first answer, the answer now, and what was found.

    answers: ten letters T, F or ?.  Ten question marks only list the claims; no first answer is looked up for them.
    """
    letters = str(answers).strip().upper().replace(" ", "")
    if len(letters) != len(CLAIMS) or set(letters) - set("TF?"):
        print(f"Write {len(CLAIMS)} letters, each T, F or ?; this was {answers!r}.")
        return
    if set(letters) == {"?"}:
        for number, claim in enumerate(CLAIMS, 1):
            print(f"{number:2}. {claim}")
        print("Put your ten letters in, and your first answers will stand beside them.")
        return
    first = kept_answers(folder)
    for number, (claim, now, (where, found)) in enumerate(zip(CLAIMS, letters, SETTLED, strict=True), 1):
        before = str(first.get(str(number), "-"))[:1]
        print(f"{number:2}. {claim}\n    first {before}, now {now}, found F: {found} (notebooks {where})")
    right = [sum(x == "F" for x in given) for given in (first.values(), letters)]
    print(f"Right: {right[0]} of 10 at first, {right[1]} of 10 now.")


def check_how_much_faster(function: Callable) -> bool:
    """function(baseline, seconds) -> (times as fast, improvement in percent), from paired runs of equal length."""

    def ratio(base, fast):  # the tokens that both would write in one second
        return (len(fast) / sum(fast)) / (len(base) / sum(base))

    def answer(base, fast):
        return [ratio(base, fast), 100 * ratio(base, fast) - 100]

    def each(base, fast):
        return _mean(a / b for a, b in zip(base, fast, strict=True))

    def middle(values):
        return sorted(values)[len(values) // 2]

    cases = [
        ("one run each, 2 s and 1 s", ([2.0], [1.0]), answer([2.0], [1.0])),
        ("a slow-down: 1 s and 4 s", ([1.0], [4.0]), answer([1.0], [4.0])),
        ("2, 2, 5 s and 1, 2, 2 s", ([2.0, 2.0, 5.0], [1.0, 2.0, 2.0]), answer([2.0, 2.0, 5.0], [1.0, 2.0, 2.0])),
        ("1, 3, 8 s and 2, 1, 3 s", ([1.0, 3.0, 8.0], [2.0, 1.0, 3.0]), answer([1.0, 3.0, 8.0], [2.0, 1.0, 3.0])),
    ]
    wrong = [
        (
            "the ratio is upside down: faster means a number above 1",
            lambda b, f: [1 / ratio(b, f), 100 / ratio(b, f) - 100],
        ),
        (
            "this is the share of the time that was saved, not how much faster",
            lambda b, f: [ratio(b, f), 100 - 100 / ratio(b, f)],
        ),
        (
            "twice as fast is 100 percent faster, not 200: take 1 off first",
            lambda b, f: [ratio(b, f), 100 * ratio(b, f)],
        ),
        ("the improvement is a fraction, and percent was asked for", lambda b, f: [ratio(b, f), ratio(b, f) - 1]),
        ("ratios were averaged; divide the mean times", lambda b, f: [each(b, f), 100 * each(b, f) - 100]),
        ("medians were divided, not means", lambda b, f: [middle(b) / middle(f), 100 * middle(b) / middle(f) - 100]),
    ]
    return _run(function, cases, wrong)


def check_tokens_per_second(function: Callable) -> bool:
    """function(prompt, lengths, seconds) -> new tokens a second; lengths hold the prompt, the first run warms up."""

    def rate(prompt, lengths, seconds, first=1, off=1):
        new = [n - prompt * off for n in lengths[first:]]
        return sum(new) / sum(seconds[first:])

    short, long = ([110, 60, 60], [9.0, 1.0, 1.5]), ([30, 30, 110, 60], [5.0, 1.0, 4.0, 1.0])
    cases = [
        ("prompt of 10, one counted run", (10, [60, 60], [9.0, 2.0]), 25.0),
        ("prompt of 10, two counted runs of 50 new tokens", (10, *short), 40.0),
        ("prompt of 10, texts of 20, 100 and 50 new tokens", (10, *long), 170 / 6),
    ]
    wrong = [
        ("the prompt is counted: nobody wrote it", lambda p, n, s: rate(p, n, s, off=0)),
        ("the warm-up is counted", lambda p, n, s: rate(p, n, s, first=0)),
        ("prompt and warm-up are counted", lambda p, n, s: rate(p, n, s, first=0, off=0)),
        (
            "rates were averaged: a short text then weighs as much as a long one",
            lambda p, n, s: _mean((a - p) / b for a, b in zip(n[1:], s[1:], strict=True)),
        ),
        ("this is seconds a token", lambda p, n, s: 1 / rate(p, n, s)),
        (
            "the prompt is taken off once; each of the texts begins with it",
            lambda p, n, s: (sum(n[1:]) - p) / sum(s[1:]),
        ),
        (
            "the tokens of the warm-up are left out, and its seconds are not",
            lambda p, n, s: sum(x - p for x in n[1:]) / sum(s),
        ),
    ]
    return _run(function, cases, wrong)


def check_break_even(function: Callable) -> bool:
    """function(gamma, c, cost) -> tokens per target pass at which speculation is as fast as the target alone."""

    def spend(gamma, c, cost):  # the time of a round, in plain steps of the target
        total = cost
        for _ in range(gamma):
            total += c
        return total

    cases = [
        ("gamma 1, a free draft, cost 1", (1, 0.0, 1.0), spend(1, 0.0, 1.0)),
        ("gamma 4, c .25, cost 1", (4, 0.25, 1.0), spend(4, 0.25, 1.0)),
        ("gamma 4, c .25, cost 1.5", (4, 0.25, 1.5), spend(4, 0.25, 1.5)),
        ("gamma 16, c .125, cost 2", (16, 0.125, 2.0), spend(16, 0.125, 2.0)),
    ]
    wrong = [
        ("the longer pass is taken to cost 1, as the textbook formula does", lambda g, c, v: g * c + 1),
        ("the draft makes gamma passes, not one", lambda g, c, v: c + v),
        (
            "the draft makes gamma passes, not gamma + 1: its own last guess it never reads",
            lambda g, c, v: (g + 1) * c + v,
        ),
        ("one was added: the bonus token is already among the tokens of the pass", lambda g, c, v: g * c + v + 1),
        ("this is the reciprocal", lambda g, c, v: 1 / (g * c + v)),
        ("the target makes one pass a round, not gamma", lambda g, c, v: g * (c + v)),
    ]
    return _run(function, cases, wrong)
