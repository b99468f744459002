"""Speed-ups that a paper reports, as printed there.  Notebook 08."""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """One setting: its gamma, alpha and c, the speed-up that the authors predict from them, and what they measured."""

    name: str
    gamma: int
    alpha: float
    c: float
    predicted: float
    measured: float


# Leviathan et al. (2211.17192), Tables 2 and 4: T5-XXL with 11 billion parameters on one TPU v4, batch size 1.
T5_XXL = (
    Reported("translation, small, T=0", 7, 0.75, 0.02, 3.2, 3.4),
    Reported("translation, small, T=1", 7, 0.62, 0.02, 2.3, 2.6),
    Reported("translation, base, T=0", 7, 0.80, 0.04, 3.3, 2.8),
    Reported("translation, base, T=1", 5, 0.68, 0.04, 2.4, 2.4),
    Reported("translation, large, T=0", 7, 0.82, 0.11, 2.5, 1.7),
    Reported("translation, large, T=1", 3, 0.71, 0.11, 2.0, 1.4),
    Reported("summaries, small, T=0", 5, 0.65, 0.02, 2.4, 3.1),
    Reported("summaries, small, T=1", 5, 0.53, 0.02, 1.9, 2.3),
    Reported("summaries, base, T=0", 5, 0.73, 0.04, 2.6, 3.0),
    Reported("summaries, base, T=1", 3, 0.55, 0.04, 1.8, 2.2),
    Reported("summaries, large, T=0", 3, 0.74, 0.11, 2.0, 2.2),
    Reported("summaries, large, T=1", 3, 0.56, 0.11, 1.6, 1.7),
)
