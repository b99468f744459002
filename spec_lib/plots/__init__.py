"""Figures and text in colour.  One palette with one meaning everywhere, and never colour alone.

One file for each subject; notebooks and the command take everything from here.  matplotlib and IPython are imported
only where they are used.
"""

from .animation import animate_rounds, animation_frames, animation_words
from .batches import plot_batches
from .characters import visible, without_controls
from .costs import (
    attainable,
    gain_grid,
    marginal_gains,
    pass_curve,
    plot_cost_parts,
    plot_lines,
    plot_marginal,
    plot_pass_cost,
    plot_region,
    plot_roofline,
    stacked,
)
from .distributions import noise_band, overlap_parts, plot_distributions, plot_empirical, plot_overlap
from .lenience import plot_gain
from .limit import plot_measured_roofline, plot_time_parts
from .passes import plot_kv_cache, plot_prefixes, seen_by
from .rounds import acceptance_positions, plot_acceptance, plot_ending, plot_rounds, plot_tapes, round_rows, tape_rows
from .rounds_cost import plot_round_cost, round_parts
from .speed import plot_reported, plot_sweep, plot_variants, sweep_points
from .style import ANSI, CSS, LETTERS, MEANING, PALETTE, SHAPE
from .sweeps import plot_sweeps, sweep_positions
from .testing import plot_power, plot_power_curves, plot_ranks, plot_scores, plot_statistics, statistic_bins
from .text import Pieces, ansi_text, html_text, origins, pieces, prompt_of, show_text

__all__ = [
    "ANSI",
    "CSS",
    "LETTERS",
    "MEANING",
    "PALETTE",
    "Pieces",
    "SHAPE",
    "acceptance_positions",
    "animate_rounds",
    "animation_frames",
    "animation_words",
    "ansi_text",
    "attainable",
    "gain_grid",
    "html_text",
    "marginal_gains",
    "noise_band",
    "origins",
    "overlap_parts",
    "pass_curve",
    "pieces",
    "plot_acceptance",
    "plot_batches",
    "plot_cost_parts",
    "plot_distributions",
    "plot_empirical",
    "plot_ending",
    "plot_gain",
    "plot_kv_cache",
    "plot_lines",
    "plot_marginal",
    "plot_measured_roofline",
    "plot_overlap",
    "plot_pass_cost",
    "plot_power",
    "plot_power_curves",
    "plot_prefixes",
    "plot_ranks",
    "plot_region",
    "plot_reported",
    "plot_roofline",
    "plot_round_cost",
    "plot_rounds",
    "plot_scores",
    "plot_statistics",
    "plot_sweep",
    "plot_sweeps",
    "plot_tapes",
    "plot_time_parts",
    "plot_variants",
    "prompt_of",
    "round_parts",
    "round_rows",
    "seen_by",
    "show_text",
    "stacked",
    "statistic_bins",
    "sweep_points",
    "sweep_positions",
    "tape_rows",
    "visible",
    "without_controls",
]
