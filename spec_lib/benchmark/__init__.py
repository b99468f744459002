"""How fast, measured honestly: loops side by side, one factor varied at a time, recordings that notebooks replay.

`compare` and `sweep` measure, `rows` and `table` say what was found, `record` and `recordings` write and read what the
notebooks replay; `copying` reads a recording of another kind.  The clock and the costs of single passes are in
`timing`, the rule of the error bars in `errors`.  Notebook 09.
"""

from ..devices import machine
from .batch_records import BatchPoint, BatchSweep, BatchTimes, batch_recording
from .batch_tables import (
    BatchRow,
    Best,
    batch_csv,
    batch_rows,
    batch_table,
    batch_words,
    best_gammas,
    predicted_speedup,
)
from .batch_timing import batch_passes
from .batches import batch_sweep
from .comparison import compare, sweep
from .drafting import drafting_cost
from .errors import Ratio, ratio, t_quantile
from .lookup import LookupRound, LookupRun, copying
from .measured import Counts, Measurement, Variant
from .parts import launches, pass_parts, recorded, replay
from .recording import FOLDER, Recording, record, recording_file, recordings
from .reported import T5_XXL, Reported
from .settings import (
    ALL,
    BATCH_GAMMAS,
    BATCH_NEW,
    BATCH_SIZES,
    DRAFT,
    DRAFTERS,
    FACTORS,
    FAST,
    GOOGLE,
    MORE,
    OWN,
    OWN_DRAFT,
    OWN_TARGET,
    RULES,
    TARGET,
    THEIRS,
    VARIANTS,
    Plug,
    Setting,
    can_be_fast,
    own_setting,
    prompts_for,
)
from .tables import Row, csv_text, in_words, rows, table
from .timing import clock, cost_ratio, first_token, in_turn, memory, pass_seconds, rounded, time_breakdown

__all__ = [
    "ALL",
    "BATCH_GAMMAS",
    "BATCH_NEW",
    "BATCH_SIZES",
    "BatchPoint",
    "BatchRow",
    "BatchSweep",
    "BatchTimes",
    "Best",
    "Counts",
    "DRAFT",
    "DRAFTERS",
    "FACTORS",
    "FAST",
    "FOLDER",
    "GOOGLE",
    "LookupRound",
    "LookupRun",
    "MORE",
    "Measurement",
    "OWN",
    "OWN_DRAFT",
    "OWN_TARGET",
    "Plug",
    "RULES",
    "Ratio",
    "Recording",
    "Reported",
    "Row",
    "Setting",
    "T5_XXL",
    "TARGET",
    "THEIRS",
    "VARIANTS",
    "Variant",
    "batch_csv",
    "batch_passes",
    "batch_recording",
    "batch_rows",
    "batch_sweep",
    "batch_table",
    "batch_words",
    "best_gammas",
    "can_be_fast",
    "clock",
    "compare",
    "copying",
    "drafting_cost",
    "cost_ratio",
    "csv_text",
    "first_token",
    "in_turn",
    "in_words",
    "launches",
    "machine",
    "memory",
    "own_setting",
    "pass_parts",
    "pass_seconds",
    "predicted_speedup",
    "prompts_for",
    "ratio",
    "record",
    "recorded",
    "recording_file",
    "recordings",
    "replay",
    "rounded",
    "rows",
    "sweep",
    "t_quantile",
    "table",
    "time_breakdown",
]
