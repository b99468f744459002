"""An exercise of notebook 07: write a rule that is wrong, and that three of the clinic's six tests cannot see."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..verification import residual, verify_google
from .engine import Answer, Case, Exercise, ask, flat, nothing_returned
from .toy import P, Q

GAMMA, LENGTH = 2, 4
_EXACT, _WRONG = 1e-6, 0.005  # what counts as no distance (float32 included), and as one


def _called(rule: Callable, text: tuple[int, ...], drafted: tuple[int, ...], uniforms: tuple[float, ...]) -> Answer:
    """The rule on the toy of 07, after a text of which the last token counts."""
    rows = torch.tensor([text[-1], *drafted])
    tokens, numbers = torch.tensor(drafted, dtype=torch.int64), torch.tensor(uniforms, dtype=torch.float64)
    return ask(rule, (P[rows], Q[rows[:-1]], tokens, numbers))


def _decision(answer: Answer, k: int) -> tuple[int, list[float]] | None:
    """(n, distribution) if the answer is that."""
    values = answer.values
    if not isinstance(values, list) or len(values) != 2 or isinstance(values[0], list):
        return None
    n, row = values[0], flat(values[1])
    whole = n in range(k + 1) and len(row) == 3 and all(x >= -1e-9 for x in row) and abs(math.fsum(row) - 1) < 1e-6
    return (int(n), row) if whole else None


def _ways(rule: Callable, last: int) -> list[tuple[float, int, tuple[int, ...]]]:
    """Every way of one round: (probability, accepted, tokens).  A uniform of 0 accepts, one of 1 rejects."""
    found = []
    for drafted in itertools.product(range(3), repeat=GAMMA):
        before = (last, *drafted)
        chance = math.prod(float(Q[a, x]) for a, x in itertools.pairwise(before))
        acceptance = [min(1.0, float(P[a, x] / Q[a, x])) for a, x in itertools.pairwise(before)]
        for uniforms in itertools.product((0.0, 1.0), repeat=GAMMA):
            weight = chance * math.prod(1 - a if u else a for a, u in zip(acceptance, uniforms, strict=True))
            if weight > 0:
                n, row = _decision(_called(rule, (last,), drafted, uniforms), GAMMA) or (0, [1.0, 0.0, 0.0])
                found += [(weight * share, n, (*drafted[:n], y)) for y, share in enumerate(row)]
    return found


def distances(rule: Callable) -> list[float]:
    """How far a rule is from a right one: in the first draft token's acceptance, then in texts of 1 to 4 tokens."""
    ways = {last: _ways(rule, last) for last in range(3)}
    texts, unfinished = Counter(), [((), 1.0)]
    while unfinished:
        text, weight = unfinished.pop()
        if len(text) >= LENGTH:
            texts[text[:LENGTH]] += weight
        else:
            unfinished += [(text + new, weight * chance) for chance, _, new in ways[(0, *text)[-1]]]
    accepted = math.fsum(chance for chance, n, _ in ways[0] if n > 0)
    found = [abs(accepted - float(torch.minimum(P[0], Q[0]).sum()))]
    for m in range(1, LENGTH + 1):
        far = 0.0
        for text in itertools.product(range(3), repeat=m):
            right = math.prod(float(P[a, x]) for a, x in itertools.pairwise((0, *text)))
            far += abs(right - math.fsum(weight for longer, weight in texts.items() if longer[:m] == text))
        found.append(far / 2)
    return found


def _from_p(p, q, drafted, uniforms):
    n, last = verify_google(p, q, drafted, uniforms)
    return n, p[n] if int(n) < len(drafted) else last


def _wrong_bonus(p, q, drafted, uniforms):
    n, last = verify_google(p, q, drafted, uniforms)
    return n, p[n - 1] if 0 < int(n) == len(drafted) else last


def _slow(p, q, drafted, uniforms):
    return 0, p[0]


_RIGHT = "this rule is right: over four tokens it writes the target's distribution"
_AT_ONCE = "the first token is wrong already: leave what happens at the first position as it is"
_BONUS = (
    "the first two tokens are right, so four tests see nothing: spoil what happens at the second position, not later"
)
_ACCEPTANCE = "the first draft token is accepted too often or too rarely: leave the number of accepted tokens as it is"
_TEXT_RIGHT = "the text is right, it is only written more slowly: the distribution has to be wrong"


@dataclass(frozen=True)
class BrokenRule(Exercise):
    """An exercise with many right answers: a rule is enumerated, and its distances say what is left to do."""

    def check(self, function: Callable) -> bool:
        drafts = [((0, 1), (0.0, 1.0)), ((1,), (1.0,)), ((), ())]
        for drafted, uniforms in drafts:
            answer, k = _called(function, (0,), drafted, uniforms), len(drafted)
            if answer.error:
                print(f"Not yet: a draft of {k} tokens raised {answer.error}")
                return False
            if answer.nothing:
                print(nothing_returned(function))
                return False
            if _decision(answer, k) is None:
                yours = answer.shown or _numbers(flat(answer.values))
                print(f"Not yet: a draft of {k} tokens\n  yours     {yours}")
                print(f"  expected  n from 0 to {k}, and a distribution over the three tokens")
                return False
        accepted, *texts = far = distances(function)
        blind = [x < _EXACT for x in far]
        if blind == [True, True, False, False, False] and min(texts[1:]) > _WRONG:
            print("Right, in all 6 tests: three see nothing, and over 2, 3, 4 tokens the distances are", end=" ")
            print(", ".join(f"{x:.3f}" for x in texts[1:]) + ".")
            return True
        print(f"Not yet: distances of `accepted`, then of texts of 1, 2, 3, 4 tokens\n  yours     {_numbers(far)}")
        print(f"  expected  0, 0, then three above {_WRONG}")
        if hint := _hint(blind):
            print(f"  Hint: {hint}.")
        return False


def _numbers(values: list[float]) -> str:
    shown = ", ".join(f"{x:.6g}" if abs(x) > 1e6 else f"{x:.3f}".rstrip("0").rstrip(".") for x in values[:12])
    return shown + (f" ... ({len(values)} numbers)" if len(values) > 12 else "") if values else "no numbers"


def _hint(blind: list[bool]) -> str:
    accepted, *texts = blind
    if all(texts):
        return _RIGHT if accepted else _TEXT_RIGHT
    if not texts[0]:
        return _AT_ONCE if accepted else _ACCEPTANCE
    return _ACCEPTANCE if not accepted else _BONUS if texts[1] else ""


BROKEN_RULE = BrokenRule(
    cases=(Case("six tests", (), 6),),
    mistakes={
        _RIGHT: verify_google,
        _AT_ONCE: _from_p,
        _BONUS: _wrong_bonus,
        _ACCEPTANCE: lambda p, q, x, u: (min(len(x), 1), p[0] if not len(x) else residual(p[0], q[0])),
        _TEXT_RIGHT: _slow,
    },
)


def check_broken_rule(function: Callable) -> bool:
    """function(p, q, drafted, uniforms) -> (n, distribution): a wrong rule that `drafted`, `accepted` and the test of
    one token cannot see, while those of 2, 3 and 4 tokens can.  Uniforms may be compared with p/q only."""
    return BROKEN_RULE.check(function)
