"""What the notebooks' exercises and their quiz call: every `check_...`, the ten claims, and the clinic of notebook 07.

A check prints yours, the expected value and the likely mistake, and never raises.  One file a notebook; an exercise is
data, `Exercise(cases, mistakes)`, and `check_x` runs the exercise `X` that stands above it.
"""

from .claims import CLAIMS, SETTLED, ask_again, keep_answers, kept_answers
from .clinic import check_diagnosis, ward
from .engine import Case, Exercise
from .nb00 import check_acceptance_rate, check_tokens_per_pass
from .nb01 import check_positions, check_temperature, check_top_p
from .nb02 import check_bytes_read, check_cost_per_kept_token, check_knee, check_median_and_spread
from .nb03 import check_distribution_of_mismatch, check_residual
from .nb04 import check_greedy_tokens, check_round_tokens, check_tokens_without_bonus
from .nb05 import check_accepted_count, check_in_chens_letters, check_lenient_acceptance
from .nb06 import check_fed_in_round, check_pending_for_draft, check_trims
from .nb07 import check_alarm_threshold, check_distribution_of_drawing_twice, check_samples_needed
from .nb08 import check_alpha_of_whole_rounds, check_break_even_c, check_gamma_from_table, check_tokens_from_positions
from .nb09 import check_break_even_batch, check_speed

__all__ = [
    "CLAIMS",
    "SETTLED",
    "Case",
    "Exercise",
    "ask_again",
    "check_acceptance_rate",
    "check_accepted_count",
    "check_alarm_threshold",
    "check_alpha_of_whole_rounds",
    "check_break_even_batch",
    "check_break_even_c",
    "check_bytes_read",
    "check_cost_per_kept_token",
    "check_diagnosis",
    "check_fed_in_round",
    "check_gamma_from_table",
    "check_greedy_tokens",
    "check_in_chens_letters",
    "check_knee",
    "check_distribution_of_drawing_twice",
    "check_distribution_of_mismatch",
    "check_lenient_acceptance",
    "check_median_and_spread",
    "check_pending_for_draft",
    "check_positions",
    "check_residual",
    "check_round_tokens",
    "check_samples_needed",
    "check_temperature",
    "check_tokens_from_positions",
    "check_tokens_per_pass",
    "check_speed",
    "check_tokens_without_bonus",
    "check_top_p",
    "check_trims",
    "keep_answers",
    "kept_answers",
    "ward",
]
