"""What was measured, and every figure that is derived from it: as rows, as a table of text, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean, median, stdev

from ..theory import predict, round_cost
from .settings import DRAFT, TARGET, Setting


@dataclass
class Variant:
    """What was counted of one variant.  gamma: what it was measured at.  seconds: of each text.

    passes, accepted, rejected: over all texts.  peak: bytes of GPU memory, the most in use at once.  note: why there
    are no seconds.
    """

    gamma: int
    seconds: list[float] = field(default_factory=list)
    passes: int = 0
    accepted: int = 0
    rejected: int = 0
    peak: int | None = None
    note: str | None = None


@dataclass
class Measurement:
    """What `compare` found at one setting.  v: n -> seconds of each target pass over n tokens, empty where not needed.

    value: of the factor, in a sweep.
    """

    pair: str
    setting: Setting
    runs: int
    v: dict[int, list[float]]
    variants: dict[str, Variant]
    value: object = None

    @classmethod
    def from_json(cls, data: dict) -> Measurement:
        """From what `json.load` gives (older files say "arms"); errors as in `Recording.from_json`."""
        return cls(
            data["pair"],
            Setting(**data["setting"]),
            data["runs"],
            {int(n): times for n, times in data["v"].items()},
            {name: Variant(**variant) for name, variant in data["variants" if "variants" in data else "arms"].items()},
            data.get("value"),
        )


@dataclass
class Row:
    """One variant's figures; None where one has no meaning.

    seconds, sd: mean and standard deviation of a text's time.  speedup: the target's mean time over this one's, which
    is also the ratio of their tokens per second.  improvement: of the speed-up, in percent.  alpha: accepted over
    verified draft tokens.  tokens_per_pass: new tokens per target pass.  predicted: the speed-up from alpha, gamma, c
    (the draft's loop over the target's) and v(gamma + 1).  peak: bytes.  speedup_sd: over sqrt(runs) it is the
    speed-up's standard error; from each evaluation's residual, (base - speedup * seconds) / mean seconds.
    predicted_from_pass: the speed-up from the tokens per pass that were counted, not those that alpha promises.
    """

    variant: str
    seconds: float | None = None
    sd: float | None = None
    tokens_per_second: float | None = None
    speedup: float | None = None
    improvement: float | None = None
    alpha: float | None = None
    tokens_per_pass: float | None = None
    predicted: float | None = None
    peak: int | None = None
    note: str | None = None
    speedup_sd: float | None = None
    predicted_from_pass: float | None = None


COLUMNS = {  # of the table, and how each is written
    "variant": "{}",
    "seconds": "{:.3f}",
    "sd": "{:.3f}",
    "tokens_per_second": "{:.1f}",
    "speedup": "{:.2f}",
    "improvement": "{:+.0f} %",
    "alpha": "{:.3f}",
    "tokens_per_pass": "{:.2f}",
    "predicted": "{:.2f}",
    "peak": "{:,}",
    "note": "{}",
}


def rows(measurement: Measurement) -> list[Row]:
    """Each variant's figures, from a measurement of `compare`, in the order of its variants."""
    all_seconds = {name: variant.seconds for name, variant in measurement.variants.items()}
    base, draft = (all_seconds.get(name, []) for name in (TARGET, DRAFT))
    v = {n: median(seconds) for n, seconds in measurement.v.items()}
    found = []
    for name, variant in measurement.variants.items():
        row = Row(name, note=variant.note)
        found.append(row)
        if not (times := variant.seconds):
            continue
        verified = variant.accepted + variant.rejected
        row.seconds, row.sd = mean(times), stdev(times) if len(times) > 1 else 0.0
        row.tokens_per_second, row.peak = measurement.setting.new / row.seconds, variant.peak
        row.tokens_per_pass = None
        if name != DRAFT and variant.passes:
            row.tokens_per_pass = measurement.setting.new * len(times) / variant.passes
        row.alpha = variant.accepted / verified if verified else None
        if variant.gamma != measurement.setting.gamma:
            row.note = f"at gamma {variant.gamma}: this version cannot do more"
        if base:
            row.speedup = mean(base) / mean(times)
            residuals = [(a - row.speedup * b) / mean(times) for a, b in zip(base, times, strict=True)]
            row.speedup_sd = stdev(residuals) if len(times) > 1 else 0.0
            row.improvement = 100 * (row.speedup - 1)
        if base and draft and verified:
            c = mean(draft) / mean(base)
            row.predicted = predict(row.alpha, variant.gamma, c, v)
            row.predicted_from_pass = row.tokens_per_pass / round_cost(variant.gamma, c, v)
    return found


def table(measurement: Measurement) -> str:
    """The rows as text in columns; columns that hold nothing are left out."""
    found = rows(measurement)
    used = [name for name in COLUMNS if any(getattr(row, name) is not None for row in found)]
    lines = [[name.replace("_", " ") for name in used]]
    lines += [[_cell(getattr(row, name), COLUMNS[name]) for name in used] for row in found]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [name in ("variant", "note") for name in used]
    return "\n".join(
        "  ".join(x.ljust(w) if a else x.rjust(w) for x, w, a in zip(line, widths, left, strict=True)).rstrip()
        for line in lines
    )


def _cell(value, look: str) -> str:
    return "" if value is None else look.format(value)


def csv_text(measurements: Sequence[Measurement]) -> str:
    """A line for each variant of each measurement: the setting, and the figures of `rows`."""
    lines = [
        {**asdict(m.setting), "pair": m.pair, "runs": m.runs, "value": m.value, **asdict(row)}
        for m in measurements
        for row in rows(m)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
