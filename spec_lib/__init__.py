"""Speculative sampling, small enough to read: the module that the course's notebooks derive piece by piece."""

from . import benchmark, checks, plots, widgets
from .cache import CachedModel, TableModel
from .classroom import setup_line
from .decoding import Generation, Round, Summary, autoregressive, speculative, speculative_rounds, summarize
from .drafting import Draft, ModelDrafter
from .pairs import Pair, check_vocabulary, load_pair
from .sampling import Sampling, Source, draw, probabilities
from .theory import best_gamma, expected_tokens, operations_factor, walltime_improvement
from .verification import residual, verify_deepmind, verify_google

__all__ = [
    "CachedModel",
    "Draft",
    "Generation",
    "ModelDrafter",
    "Pair",
    "Round",
    "Sampling",
    "Source",
    "Summary",
    "TableModel",
    "autoregressive",
    "benchmark",
    "best_gamma",
    "checks",
    "check_vocabulary",
    "draw",
    "expected_tokens",
    "load_pair",
    "operations_factor",
    "plots",
    "probabilities",
    "residual",
    "setup_line",
    "speculative",
    "speculative_rounds",
    "summarize",
    "verify_deepmind",
    "verify_google",
    "walltime_improvement",
    "widgets",
]
