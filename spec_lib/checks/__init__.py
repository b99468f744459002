"""What the notebooks' exercises and their quiz call: every `check_...`, the ten claims, and the clinic of notebook 07.

A check prints yours, the expected value and the likely mistake, and never raises.  One file a notebook; an exercise is
data, `Exercise(cases, mistakes)`, and `check_x` runs the exercise `X` above it.  Notebook 07 works with `toy`,
`chi_squared`, `laboratory`, `faulty` and `clinic`, and with `recorded_texts` and `real_patients`.
"""

from .blocks import accepted_and_distances
from .broken import check_broken_rule
from .claims import CLAIMS, SETTLED, ask_again, keep_answers, kept_answers
from .clinic import check_diagnosis, ward
from .engine import Case, Exercise
from .enumeration import every_round, every_text, first_tokens, largest_difference, target_texts, total_variation
from .nb00 import check_count_accepted
from .nb01 import check_positions, check_temperature, check_token_probabilities, check_top_p
from .nb02 import check_bytes_read, check_cost_per_token, check_median_and_spread, check_pass_times
from .nb03 import check_distribution_of_mismatch, check_residual
from .nb04 import check_greedy_tokens, check_round_tokens, check_tokens_without_bonus
from .nb05 import check_accepted_count, check_lenient_acceptance, check_misprinted_lines, host_reads, random_rounds
from .nb06 import check_fed_in_round, check_smallest_test, check_trims
from .nb07 import check_distribution_of_drawing_twice, check_samples_needed
from .nb08 import (
    check_alpha_of_whole_rounds,
    check_break_even_c,
    check_gamma_from_table,
    check_identity_sides,
    check_tokens_from_positions,
    stretches,
)
from .nb09 import check_break_even_batch, check_speed
from .nb10 import check_choose, check_find, check_two_ways
from .nb11 import check_prefix_weights, check_same_probability
from .nb13 import as_derived, check_grown, check_next_length, check_visible
from .nb14 import check_branch_from, check_tree_mask, check_two_candidates
from .real_patients import check_real_patients

__all__ = [
    "CLAIMS",
    "Case",
    "Exercise",
    "SETTLED",
    "accepted_and_distances",
    "as_derived",
    "ask_again",
    "check_accepted_count",
    "check_alpha_of_whole_rounds",
    "check_break_even_batch",
    "check_break_even_c",
    "check_branch_from",
    "check_broken_rule",
    "check_bytes_read",
    "check_choose",
    "check_cost_per_token",
    "check_count_accepted",
    "check_diagnosis",
    "check_distribution_of_drawing_twice",
    "check_distribution_of_mismatch",
    "check_fed_in_round",
    "check_find",
    "check_gamma_from_table",
    "check_greedy_tokens",
    "check_grown",
    "check_identity_sides",
    "check_lenient_acceptance",
    "check_median_and_spread",
    "check_misprinted_lines",
    "check_next_length",
    "check_pass_times",
    "check_positions",
    "check_prefix_weights",
    "check_real_patients",
    "check_residual",
    "check_round_tokens",
    "check_same_probability",
    "check_samples_needed",
    "check_smallest_test",
    "check_speed",
    "check_temperature",
    "check_token_probabilities",
    "check_tokens_from_positions",
    "check_tokens_without_bonus",
    "check_top_p",
    "check_tree_mask",
    "check_trims",
    "check_two_candidates",
    "check_two_ways",
    "check_visible",
    "every_round",
    "every_text",
    "first_tokens",
    "host_reads",
    "keep_answers",
    "kept_answers",
    "largest_difference",
    "random_rounds",
    "stretches",
    "target_texts",
    "total_variation",
    "ward",
]
