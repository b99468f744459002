"""How fast, measured honestly: loops side by side, one factor varied at a time, recordings that notebooks replay.

`compare` and `sweep` measure, `rows` and `table` say what was found, `record` and `recordings` write and read what the
notebooks replay.  The clock and the costs of single passes are in `timing`, the rule of the error bars in `errors`.
Notebook 09.
"""

from ..devices import machine
from .comparison import compare, sweep
from .errors import Ratio, ratio, t_quantile
from .measured import Counts, Measurement, Variant
from .recording import FOLDER, Recording, record, recording_file, recordings
from .settings import DRAFT, FACTORS, RULES, TARGET, THEIRS, VARIANTS, Setting, prompts_for
from .tables import Row, csv_text, rows, table
from .timing import clock, cost_ratio, first_token, memory, pass_seconds, rounded, time_breakdown

__all__ = [
    "VARIANTS",
    "Variant",
    "Counts",
    "DRAFT",
    "FACTORS",
    "FOLDER",
    "Measurement",
    "RULES",
    "Ratio",
    "Recording",
    "Row",
    "Setting",
    "TARGET",
    "THEIRS",
    "clock",
    "compare",
    "cost_ratio",
    "csv_text",
    "first_token",
    "machine",
    "memory",
    "pass_seconds",
    "prompts_for",
    "ratio",
    "record",
    "recording_file",
    "recordings",
    "rounded",
    "rows",
    "sweep",
    "t_quantile",
    "table",
    "time_breakdown",
]
