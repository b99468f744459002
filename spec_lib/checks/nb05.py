"""What notebook 05 needs: its exercises, random rounds on which rules are compared, and a count of host reads."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Sequence

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..sampling import draw
from .engine import Case, Exercise, flat, nested
from .reference import pairs

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # p, q, drafted, uniforms: what a rule is given


def random_rounds(count: int = 1000) -> list[Inputs]:
    """(p, q, drafted, uniforms) of random rounds, the same in each call; a quarter of them at each vocabulary.

    Vocabularies of 2, 5, 100 and 2,000; one to eight draft tokens.  About a third of the tokens are impossible, a fifth
    of the rows one-hot, three fifths of the draft's rows the target's own, a tenth of the uniforms exactly 0.
    """
    g = torch.Generator().manual_seed(0)
    return [_random_round(vocab, g) for vocab in (2, 5, 100, 2000) for _ in range(count // 4)]


def _random_round(vocab: int, g: torch.Generator) -> Inputs:
    k = int(torch.randint(1, 9, (), generator=g))
    p, q = _random_rows(k + 1, vocab, g), _random_rows(k, vocab, g)
    q = torch.where(torch.rand(k, 1, generator=g) < 0.6, p[:k], q)
    drafted = torch.cat([draw(row, torch.rand((), generator=g)) for row in q])
    return p, q, drafted, torch.rand(k, generator=g) * (torch.rand(k, generator=g) < 0.9)


def _random_rows(rows: int, vocab: int, g: torch.Generator) -> torch.Tensor:
    x = torch.rand(rows, vocab, generator=g).pow(3) * (torch.rand(rows, vocab, generator=g) < 0.7)
    x[:, 0] += 0.01  # no row is empty
    hot = torch.nn.functional.one_hot(x.argmax(-1), vocab).float()
    x = torch.where(torch.rand(rows, 1, generator=g) < 0.2, hot, x)
    return x / x.sum(-1, keepdim=True)


def _first_rejection(row: Sequence[bool]) -> int:
    return next((i for i, accepted in enumerate(row) if not accepted), len(row))


def _each_row(count: Callable[[list[bool]], int] = _first_rejection) -> Callable[[torch.Tensor], list[int]]:
    """A count of one list of verdicts, made to work on a mask of one or two dimensions."""
    return lambda mask: [count(row) for row in (mask.tolist() if mask.ndim == 2 else [mask.tolist()])]


def _down_the_columns(mask: torch.Tensor) -> list[int]:
    rows = mask.tolist() if mask.ndim == 2 else [[accepted] for accepted in mask.tolist()]
    return [sum(all(row[j] for row in rows[: i + 1]) for i in range(len(rows))) for j in range(len(rows[0]))]


_READS = (  # what a device has to finish before the host goes on: a value, or a shape that depends on values
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.equal.default,
    torch.ops.aten._unique2.default,
)


def host_reads(function: Callable, arguments: tuple) -> int:
    """How often a call reads a tensor's value on the host; on a GPU it would wait for the device each time."""
    found = []

    class Scalars(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            by_mask = func is torch.ops.aten.index.Tensor and any(
                i is not None and i.dtype == torch.bool for i in args[1]
            )
            if func in _READS or by_mask:
                found.append(func)
            return func(*args, **(kwargs or {}))

    class Transfers(TorchFunctionMode):  # which a CPU does without an operation
        def __torch_function__(self, func, types, args=(), kwargs=None):
            name, there = getattr(func, "__name__", ""), [*args[1:], *(kwargs or {}).values()]
            if name in ("tolist", "numpy", "cpu", "__array__") or (name == "to" and "cpu" in map(str, there)):
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


def _what_is_left(function: Callable) -> str:
    found = function(_MASKS["two rows of three"][0].clone())
    if isinstance(found, torch.Tensor) and found.ndim > 1:
        return (
            f"One thing is left: its shape for a mask of two rows\n  yours     {tuple(found.shape)}\n"
            "  expected  (2,)\n  Hint: one number a row: keepdim=True leaves a dimension too many."
        )
    return _reads_values(function)


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
        "the product runs down the columns, and only the sum along a row; both belong along the row (dim -1)": (
            lambda mask: mask.long().cumprod(0).sum(-1)
        ),
        "this says whether a row is accepted whole, as a product does; the count needs the running product": (
            lambda mask: mask.long().prod(-1)
        ),
        "this is the running product itself; the count is its sum along a row": lambda mask: mask.long().cumprod(-1),
    },
    afterwards=_what_is_left,
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
        "chances to be accepted are added up; weigh each with q(x), the chance that the token is drafted at all": (
            _added(lambda a, b, lenience: min(1.0, a / (lenience * b)) if b > 0 else 1.0)
        ),
        "the two are swapped: tokens are drafted with q, and the target's p is divided by the lenience": (
            _added(lambda a, b, lenience: min(b / lenience, a))
        ),
        "this is the share of draft tokens that is rejected": lambda p, q, lenience: 1 - _lenient(p, q, lenience),
        "a mean over the vocabulary is taken; shares of the tokens are added up": (
            lambda p, q, lenience: _lenient(p, q, lenience) / len(p)
        ),
        "one number is asked for: add up the shares of the tokens": (
            lambda p, q, lenience: [min(a / lenience, b) for a, b in pairs(p, q)]
        ),
        "0 / 0 is summed: where q is 0 nothing is drafted, so multiply q into the minimum first": (
            lambda p, q, x: math.nan if any(a == b == 0 for a, b in pairs(p, q)) else _lenient(p, q, x)
        ),
    },
)


def check_lenient_acceptance(function: Callable[[torch.Tensor, torch.Tensor, float], float]) -> bool:
    """function(p, q, lenience) -> share of draft tokens accepted when u < p / (lenience q) accepts."""
    return LENIENT_ACCEPTANCE.check(function)


# Lines of Chen et al.'s Algorithm 2 as the notebook numbers them.  Each triple is what somebody would answer who takes
# one right line for a misprint and overlooks the misprint that the hint speaks of.
MISPRINTED_LINES = Exercise(
    cases=(Case("the misprinted lines", (), (8, 10, 12)),),
    mistakes={
        "line 7 is right, the strict test of notebook 03: look at what else changes in line 8 while t runs": (
            lambda: (7, 10, 12)
        ),
        "line 7 is right; compare lines 8 and 10: only one of them says that the text has grown": lambda: (7, 8, 12),
        "line 7 is right; read the context in line 12 to its end": lambda: (7, 8, 10),
        "line 11 is right: the extra token is for a draft that is accepted whole; but read the context in line 12": (
            lambda: (8, 10, 11)
        ),
        "line 11 is right; compare lines 8 and 10: only one of them says that the text has grown": lambda: (8, 11, 12),
        "line 4 is right: K + 1 distributions, one after each prefix; look for the line that fails to raise n": (
            lambda: (4, 8, 12)
        ),
        "line 2 is right, T is a minimum: look at what else changes in line 8 while t runs": lambda: (2, 10, 12),
        "line 6 is right: when a uniform is drawn does not matter; read the context in line 12 to its end": (
            lambda: (6, 8, 10)
        ),
        "lines 3 and 5 are right: look where n changes, and where it should": lambda: (3, 5, 12),
    },
    secret=True,
)


def check_misprinted_lines(function: Callable[[], tuple[int, int, int]]) -> bool:
    """function() -> the three misprinted lines, in any order."""

    @functools.wraps(function)
    def in_order() -> object:
        found = function()
        if isinstance(found, str) and (written := re.findall(r"\d+", found)):
            found = [int(number) for number in written]
        try:
            numbers = nested(list(found) if isinstance(found, (set, frozenset)) else found)
        except Exception:  # no numbers: the check says what it is
            return found
        return sorted(numbers) if isinstance(numbers, list) and numbers == flat(numbers) else found

    return MISPRINTED_LINES.check(in_order)
