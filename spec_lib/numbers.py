"""What a caller hands in: a whole number as an int, or words for the sentence that says what is wrong with it."""

from __future__ import annotations

import math
import operator
import reprlib

import torch


def as_int(value) -> int | None:
    """The int that `value` is (a numpy integer or an integer tensor of one element too), or None if it is none."""
    if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
        return None
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # torch raises the second for tensors of several elements
        return None


def as_float(value) -> float:
    """The float that `value` is (of numpy or a tensor of one element too), or NaN if it is none."""
    try:
        return math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of several elements, of words
        return math.nan


def at_least_one(name: str, value) -> int:
    """`value` as an int; ValueError in one sentence where it is not a whole number of at least 1."""
    if (as_int(value) or 0) < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return as_int(value)


def described(thing) -> str:
    """What was given, in a few words of one line: an object's printout may fill pages."""
    if isinstance(thing, type):
        return f"the class {thing.__name__} (make one of it first)"
    text = reprlib.repr(thing)
    return f"a {type(thing).__name__}" if "\n" in text or "..." in text else text
