"""Figures and text in colour.  One palette with one meaning everywhere, and never colour alone.

One file for each subject; notebooks and the command take everything from here.  matplotlib and IPython are imported
only where they are used.
"""

from .animation import animate_rounds, animation_frames
from .characters import visible, without_controls
from .costs import (
    gain_grid,
    pass_curve,
    plot_cost_parts,
    plot_lines,
    plot_pass_cost,
    plot_region,
    stacked,
)
from .distributions import (
    noise_band,
    overlap_parts,
    plot_distributions,
    plot_empirical,
    plot_overlap,
    plot_power,
    plot_statistics,
    statistic_bins,
)
from .rounds import (
    acceptance_positions,
    plot_acceptance,
    plot_positions,
    plot_rounds,
    plot_tapes,
    round_rows,
    tape_rows,
    text_positions,
)
from .rounds_cost import plot_round_cost, round_parts
from .speed import breakdown_rows, plot_reported, plot_sweep, plot_time_breakdown, plot_variants, sweep_points
from .style import ANSI, CSS, LETTERS, MEANING, PALETTE, SHAPE
from .sweeps import plot_sweeps, sweep_positions
from .text import ansi_text, html_text, origins, pieces, prompt_of, show_text

__all__ = [
    "ANSI",
    "CSS",
    "LETTERS",
    "MEANING",
    "PALETTE",
    "SHAPE",
    "acceptance_positions",
    "animate_rounds",
    "animation_frames",
    "ansi_text",
    "breakdown_rows",
    "gain_grid",
    "html_text",
    "noise_band",
    "origins",
    "overlap_parts",
    "pass_curve",
    "pieces",
    "plot_acceptance",
    "plot_variants",
    "plot_time_breakdown",
    "plot_cost_parts",
    "plot_empirical",
    "plot_distributions",
    "plot_lines",
    "plot_overlap",
    "plot_pass_cost",
    "plot_positions",
    "plot_power",
    "plot_region",
    "plot_reported",
    "plot_round_cost",
    "plot_rounds",
    "plot_statistics",
    "plot_sweep",
    "plot_sweeps",
    "plot_tapes",
    "prompt_of",
    "round_parts",
    "round_rows",
    "show_text",
    "stacked",
    "statistic_bins",
    "sweep_points",
    "sweep_positions",
    "tape_rows",
    "text_positions",
    "visible",
    "without_controls",
]
