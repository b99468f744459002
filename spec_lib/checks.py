"""Exercise checkers: they print yours, the expected value and the likely mistake, and never raise.

Each tries the simplest case first and compares with an answer worked out here by other means than the module's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from .decoding import Round

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
    letters = answers.strip().upper().replace(" ", "")
    if len(letters) != len(CLAIMS) or set(letters) - set("TF?"):
        print(f"Write {len(CLAIMS)} letters, each T, F or ?; this was {answers!r}.")
        return
    file = Path(folder or Path.home() / ".speculative_sampling") / "answers.json"
    try:
        kept = {**kept_answers(folder), **{str(i): x for i, x in enumerate(letters, 1) if x != "?"}}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept))
    except OSError:
        print("Your answers could not be written to disk; note them on paper.")
        return
    print(f"Kept: {len(CLAIMS) - letters.count('?')} answers, {letters.count('?')} left open.")


def kept_answers(folder: str | Path | None = None) -> dict[str, str]:
    """The kept guesses: {"1": "T", ...}; empty where there are none."""
    file = Path(folder or Path.home() / ".speculative_sampling") / "answers.json"
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}


def _run(function: Callable, cases: Sequence[tuple], wrong: Sequence[tuple[str, Callable]]) -> bool:
    """Try (name, arguments, expected) in order; at the first difference say what it looks like.

    wrong: (likely mistake, how that mistake would answer).
    """
    for name, arguments, expected in cases:
        try:
            got = function(*arguments)
        except Exception as error:  # an exercise must never stop the notebook
            print(f"Not yet: {name} raised {type(error).__name__}: {error}")
            return False
        if got is None or got is Ellipsis:
            print("Nothing returned yet: replace the placeholder, then run the cell and this check again.")
            return False
        if _close(got, expected):
            continue
        print(f"Not yet: {name}\n  yours     {_show(got)}\n  expected  {_show(expected)}")
        for mistake, answer in wrong:
            if _close(got, answer(*arguments)):
                print(f"  It looks as if {mistake}.")
                break
        return False
    print(f"Right, in all {len(cases)} cases.")
    return True


def _numbers(x) -> list[float]:
    return torch.as_tensor(x, dtype=torch.float64).flatten().tolist()


def _close(got, expected) -> bool:
    try:
        a, b = _numbers(got), _numbers(expected)
    except (TypeError, ValueError, RuntimeError):
        return False
    return len(a) == len(b) and all(
        abs(x - y) < 1e-5 or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True)
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
    ]
    wrong = [
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
