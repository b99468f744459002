"""Drafters other than a second model: each plugs into `speculative` as its `draft`.  Notebooks 10 and 14."""

from .branching import Tree
from .early_exit import EarlyExit, first_layers, with_layers
from .heads import ExitHead, Heads, RecurrentHead
from .lessons import LOSSES, Lessons, overlaps, train
from .ngram import NGram
from .shipped import shipped_head

__all__ = [
    "LOSSES",
    "EarlyExit",
    "ExitHead",
    "Heads",
    "Lessons",
    "NGram",
    "RecurrentHead",
    "Tree",
    "first_layers",
    "overlaps",
    "shipped_head",
    "train",
    "with_layers",
]
