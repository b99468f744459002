"""The exercises of notebook 05: the accepted count as tensors, lenient acceptance, and the same in Chen's letters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .engine import Exercise
from .reference import lacks, pairs, scaled


def _first_rejection(row: Sequence[bool]) -> int:
    return next((i for i, accepted in enumerate(row) if not accepted), len(row))


def _each_row(count: Callable[[list[bool]], int] = _first_rejection) -> Callable[[torch.Tensor], list[int]]:
    """A count of one list of verdicts, made to work on a mask of one or two dimensions."""
    return lambda mask: [count(row) for row in (mask.tolist() if mask.ndim == 2 else [mask.tolist()])]


def _down_the_columns(mask: torch.Tensor) -> list[int]:
    rows = mask.tolist() if mask.ndim == 2 else [[accepted] for accepted in mask.tolist()]
    return [sum(all(row[j] for row in rows[: i + 1]) for i in range(len(rows))) for j in range(len(rows[0]))]


def host_reads(function: Callable, arguments: tuple) -> int:
    """How often a call reads a tensor's value on the host; on a GPU it would wait for the device each time."""
    found = []

    class Scalars(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._local_scalar_dense.default or func is torch.ops.aten.nonzero.default:
                found.append(func)
            return func(*args, **(kwargs or {}))

    class Transfers(TorchFunctionMode):  # which a CPU does without an operation
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") in ("tolist", "numpy", "cpu"):
                found.append(func)
            return func(*args, **(kwargs or {}))

    arguments = copy.deepcopy(arguments)  # it may change what it is given
    with Scalars(), Transfers():
        function(*arguments)
    return len(found)


_MASKS = {
    "accept, reject, accept, accept, reject": (torch.tensor([1, 0, 1, 1, 0]).bool(),),
    "reject, accept, accept": (torch.tensor([0, 1, 1]).bool(),),
    "four times accept": (torch.tensor([1, 1, 1, 1]).bool(),),
    "accept, accept, reject, accept, accept": (torch.tensor([1, 1, 0, 1, 1]).bool(),),
    "two rows of three": (torch.tensor([[1, 1, 0], [0, 1, 1]]).bool(),),
    "three rows of three": (torch.tensor([[1, 1, 1], [0, 0, 1], [1, 0, 1]]).bool(),),
}


def _reads_values(function: Callable) -> str:
    found = host_reads(function, _MASKS["accept, accept, reject, accept, accept"])
    if not found:
        return ""
    return (
        f"One thing is left: it reads values one by one\n  yours     {found} host-device "
        f"synchronisation{'s' * (found > 1)}\n"
        "  expected  none\n  Hint: a loop with an `if` in it, or an int(), waits for the device: stay with tensors."
    )


ACCEPTED_COUNT = Exercise.against(
    _each_row(),
    cases=_MASKS,
    mistakes={
        "accepted tokens after the first rejection are counted: the sum of the mask is not the count": _each_row(sum),
        "a row without a rejection has no first False to be found, and must count all its tokens": (
            _each_row(lambda row: _first_rejection(row) % len(row))
        ),
        "only the first verdict is looked at: one accepted token does not mean that all are accepted": (
            _each_row(lambda row: len(row) * row[0])
        ),
        "everything up to the last accepted token is counted, rejections included": (
            _each_row(lambda row: max((i + 1 for i, accepted in enumerate(row) if accepted), default=0))
        ),
        "the first rejected token is counted too": _each_row(lambda row: min(_first_rejection(row) + 1, len(row))),
        "the counts of all rows are added up; each row has its own": lambda mask: [sum(_each_row()(mask))],
        "the mask is summed over all rows and past rejections: one count a row, up to its first False": (
            lambda mask: [int(mask.sum())] if mask.ndim == 2 else _each_row()(mask)
        ),
        "the product runs down the columns; the tokens of one draft lie along a row": _down_the_columns,
    },
    afterwards=_reads_values,
)


def check_accepted_count(function: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """function(mask) -> verdicts before the first False, (k,) -> () or (rows, k) -> (rows,), on the device."""
    return ACCEPTED_COUNT.check(function)


def _lenient(p: torch.Tensor, q: torch.Tensor, lenience: float) -> float:
    return sum(b * min(1.0, a / (lenience * b)) for a, b in pairs(p, q) if b > 0)


def _added(share: Callable[[float, float, float], float]) -> Callable[[torch.Tensor, torch.Tensor, float], float]:
    """share(p, q, lenience), added up over the tokens."""
    return lambda p, q, lenience: sum(share(a, b, lenience) for a, b in pairs(p, q))


_RULE = (torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3]))
_FAR = (torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.1, 0.2, 0.7]))
_ZEROS = (torch.tensor([0.5, 0.0, 0.5, 0.0]), torch.tensor([0.0, 0.75, 0.25, 0.0]))

LENIENT_ACCEPTANCE = Exercise.against(
    _lenient,
    cases={
        "p = .5 .3 .2, q = .2 .5 .3, lenience 1: the strict rule": (*_RULE, 1.0),
        "p = .6 .3 .1, q = .1 .2 .7, lenience .3": (*_FAR, 0.3),
        "p = .6 .3 .1, q = .1 .2 .7, lenience .5": (*_FAR, 0.5),
        "p = .5 0 .5 0, q = 0 .75 .25 0, lenience .5": (*_ZEROS, 0.5),
    },
    mistakes={
        "min(p, lenience q) is summed, but tokens are drafted with q: the lenient share is larger, not smaller": (
            _added(lambda a, b, lenience: min(a, lenience * b))
        ),
        "the whole overlap is divided by the lenience and capped at 1: the cap is q(x), token by token": (
            lambda p, q, lenience: min(1.0, _lenient(p, q, 1.0) / lenience)
        ),
        "the overlap is divided by the lenience and not capped at all": (
            lambda p, q, lenience: _lenient(p, q, 1.0) / lenience
        ),
        "p / lenience is capped at 1: a token cannot be accepted more often than it is drafted, q(x)": (
            _added(lambda a, b, lenience: min(1.0, a / lenience))
        ),
        "tokens are weighted with p: it is the draft model that proposes them, with q": (
            _added(lambda a, b, lenience: a * min(1.0, a / (lenience * b)) if b > 0 else a)
        ),
        "p is multiplied by the lenience: that makes the rule stricter": (
            _added(lambda a, b, lenience: min(a * lenience, b))
        ),
        "the lenience is not used: this is the strict rule's share": lambda p, q, lenience: _lenient(p, q, 1.0),
        "0 / 0 is summed: where q is 0 nothing is drafted, so multiply q into the minimum first": (
            lambda p, q, x: math.nan if any(a == b == 0 for a, b in pairs(p, q)) else _lenient(p, q, x)
        ),
    },
)


def check_lenient_acceptance(function: Callable[[torch.Tensor, torch.Tensor, float], float]) -> bool:
    """function(p, q, lenience) -> share of draft tokens accepted when u < p / (lenience q) accepts."""
    return LENIENT_ACCEPTANCE.check(function)


InChensLetters = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple]


def _chen(
    rest: Callable[[list[float], list[float]], list[float]] = lambda q, p: scaled(lacks(q, p)),
    bonus: int = -1,
    more: int = 1,
) -> InChensLetters:
    """The paper's loop, on lists; the arguments are what a mistake gets wrong."""

    def loop(q, p, drafted, r):
        q, p = q.tolist(), p.tolist()
        for t, (x, u) in enumerate(zip(drafted.tolist(), r.tolist(), strict=False)):
            if not (p[t][x] == 0 or u < q[t][x] / p[t][x]):
                return t + more, rest(q[t], p[t])
        return len(p) + more, q[bonus]

    return loop


def _unswapped(q, p, drafted, r):
    padded = torch.cat([r, r.new_zeros(len(drafted) - len(r))])
    return _chen()(torch.cat([p, q[-1:]]), q[:-1], drafted, padded)


def _in_front(q, p, drafted, r):
    return _chen()(q, p, drafted, torch.cat([r.new_zeros(len(drafted) - len(r)), r]))


_TARGET = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5], [0.125, 0.25, 0.625]])
_DRAFT = torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [0.5, 0.375, 0.125]])
_TIE = (torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.5, 0.0]]))


def _given(q: torch.Tensor, p: torch.Tensor, drafted: list[int], r: list[float]) -> tuple:
    return q, p, torch.tensor(drafted), torch.tensor(r)


IN_CHENS_LETTERS = Exercise.against(
    _chen(),
    cases={
        "K = 2, both accepted": _given(_TARGET[:3], _DRAFT[:2], [0, 1], [0.75, 0.875]),
        "K = 2, the second rejected": _given(_TARGET[:3], _DRAFT[:2], [0, 0], [0.75, 0.5]),
        "K = 3, the second rejected: r holds two numbers": _given(_TARGET, _DRAFT, [0, 0, 2], [0.75, 0.375]),
        "K = 3, the first rejected: r holds one": _given(_TARGET, _DRAFT, [1, 1, 2], [0.625]),
        "K = 3, all accepted": _given(_TARGET, _DRAFT, [0, 1, 2], [0.875, 0.5, 0.25]),
        "a tie at probability 0, which must reject": _given(*_TIE, [0], [0.0]),
    },
    mistakes={
        "the accepted tokens are counted; the text also grows by the resampled or the bonus token": _chen(more=0),
        "the missing uniforms were put in front: r belongs to the first draft tokens": _in_front,
        "the letters are not swapped: here q is the target and p the draft": _unswapped,
        "the residual is the wrong way round: draw what the target has and the draft lacks, (q - p)+": (
            _chen(lambda q, p: scaled(lacks(p, q)))
        ),
        "after a rejection the target's distribution itself is returned, not the residual": _chen(lambda q, p: q),
        "the bonus token's distribution is one row too early: it is the target's last row, number K + 1": (
            _chen(bonus=-2)
        ),
    },
)


def check_in_chens_letters(function: InChensLetters) -> bool:
    """function(q, p, drafted, r) -> (new tokens, distribution of the last); q is the target's, p the draft's."""
    return IN_CHENS_LETTERS.check(function)
