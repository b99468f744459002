"""Speculative sampling, small enough to read: the module that the course's notebooks derive piece by piece."""

from . import interrupts  # noqa: F401  (before what takes seconds)

# isort: split
from . import benchmark, checks, drafters, plots, protocols, widgets
from .batch import Engine
from .cache import CachedModel, TableModel
from .classroom import setup_line
from .coupling import SharedNoise
from .decoding import autoregressive, speculative, speculative_batch, speculative_rounds
from .drafting import ModelDrafter
from .gpt2 import GPT2
from .modes import evaluating
from .pairs import Pair, check_vocabulary, load_pair
from .protocols import Draft
from .records import Generation, Round, Summary, summarize
from .sampling import Randomness, Sampling, draw, probabilities
from .theory import best_gamma, expected_tokens, operations_factor, walltime_improvement
from .trees import verify_tree
from .verification import residual, verify_block, verify_deepmind, verify_google

__all__ = [
    "CachedModel",
    "Draft",
    "Engine",
    "GPT2",
    "Generation",
    "ModelDrafter",
    "Pair",
    "Round",
    "Randomness",
    "Sampling",
    "SharedNoise",
    "Summary",
    "TableModel",
    "autoregressive",
    "benchmark",
    "best_gamma",
    "checks",
    "check_vocabulary",
    "draw",
    "drafters",
    "evaluating",
    "expected_tokens",
    "load_pair",
    "operations_factor",
    "plots",
    "probabilities",
    "protocols",
    "residual",
    "setup_line",
    "speculative",
    "speculative_batch",
    "speculative_rounds",
    "summarize",
    "verify_block",
    "verify_deepmind",
    "verify_google",
    "verify_tree",
    "walltime_improvement",
    "widgets",
]
