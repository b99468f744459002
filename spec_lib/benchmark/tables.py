"""Every figure that is derived from a measurement: as rows, as a table of text, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median, stdev

from ..theory import predict, round_cost
from .errors import ratio
from .measured import Counts, Measurement, Variant
from .settings import DRAFTS, FAST, MORE, OWN, OWN_TARGET, PLAIN, SPECULATIVE, TARGET, THEIRS


@dataclass
class Row:
    """One variant's figures; None where one has no meaning.

    seconds, sd: mean and standard deviation of a text's time.  speedup: the target's mean time over this one's, which
    is also the ratio of their tokens per second.  improvement: of the speed-up, in percent.  peak: bytes.
    over_plain, plain_margin: the same over the plain loop on the variant's own forward passes (`PLAIN`), and half its
    95 % interval.  ms_per_pass: milliseconds of the text for each target pass, drafting and all else included.
    error, margin: the speed-up's standard error, and half its 95 % interval (`errors.ratio`); None for a single text.
    texts: how many different ones stand behind these figures, None where it was not recorded.
    tokens, passes: emitted tokens and target passes in all, cut rounds too.

    Fitted, over the rounds that `fitted` names: alpha, accepted over verified draft tokens (None under block
    verification and for trees, where tokens after a rejected one are verified too); accepted_per_round;
    tokens_per_pass, new tokens per target pass; and from these predicted, over_plain from alpha, gamma, c (the
    draft's loop over the target's) and v(gamma + 1) of its forward passes; predicted_from_pass, the same from the
    tokens per pass that were counted, not those that alpha promises.  `MORE` has no predictions: c is the draft
    model's under the usual rule.
    fitted: "full rounds" | "all rounds" (nobody counted which were cut: transformers' loops, older recordings) |
    "full rounds of the other texts".
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
    predicted_from_pass: float | None = None
    error: float | None = None
    margin: float | None = None
    texts: int | None = None
    tokens: int | None = None
    passes: int | None = None
    accepted_per_round: float | None = None
    fitted: str | None = None
    over_plain: float | None = None
    plain_margin: float | None = None
    ms_per_pass: float | None = None
    c: float | None = None


COLUMNS = {  # of the table, and how each is written
    "variant": "{}",
    "seconds": "{:.3f}",
    "sd": "{:.3f}",
    "tokens_per_second": "{:.1f}",
    "speedup": "{:.2f}",
    "improvement": "{:+.0f} %",
    "over_plain": "{:.2f}",
    "plain_margin": "+-{:.2f}",
    "alpha": "{:.3f}",
    "tokens_per_pass": "{:.2f}",
    "ms_per_pass": "{:.2f}",
    "predicted": "{:.2f}",
    "peak": "{:,}",
    "note": "{}",
}


def rows(measurement: Measurement, held_out: bool = False) -> list[Row]:
    """Each variant's figures, from a measurement of `compare`, in the order of its variants.

    held_out: a prediction that can fail.  alpha, tokens per pass and c are fitted to the even-numbered texts (the 2nd,
    4th, ...), and seconds, speed-up and margin are those of the odd ones, which the fit has not seen.  (v is of passes
    that were timed by themselves.)  Where that cannot be done the rows are the usual ones, and their note says why.
    """
    parts, why_not = _halves(measurement) if held_out else (None, None)
    return [_row(measurement, name, variant, parts, why_not) for name, variant in measurement.variants.items()]


def _halves(measurement: Measurement) -> tuple[tuple[list[int], list[int]] | None, str | None]:
    """((the evaluations to fit, those to predict), None), or (None, why there are no such halves).

    Texts are halved, not evaluations: at temperature 0 the same text comes again, and would predict itself.
    """
    drafting = [variant for name, variant in measurement.variants.items() if name in SPECULATIVE and variant.seconds]
    if not drafting or not all(variant.counts and variant.text for variant in drafting):
        return None, "predicted from the same texts: the counts of each were not recorded"
    text = drafting[0].text  # the variants took turns on the same prompts
    fit, shown = ([i for i, number in enumerate(text) if number % 2 == half] for half in (1, 0))
    return ((fit, shown), None) if fit else (None, "predicted from the same text: there is no other")


def _row(measurement: Measurement, name: str, variant: Variant, parts, why_not: str | None) -> Row:
    if not variant.seconds:
        return Row(name, note=variant.note)
    fit, shown = parts or [range(len(variant.seconds))] * 2
    its_plain = PLAIN.get(name, TARGET)
    names = TARGET, its_plain, DRAFTS.get(its_plain)
    base, plain, draft = (measurement.variants[x].seconds if x in measurement.variants else [] for x in names)
    text, mine = [variant.text[i] for i in shown if variant.text], [variant.seconds[i] for i in shown]
    row = Row(name, seconds=mean(mine), sd=stdev(mine) if len(mine) > 1 else 0.0, peak=variant.peak)
    row.texts, row.tokens = len(set(text)) or None, measurement.setting.new * len(mine)
    row.tokens_per_second = row.tokens / sum(mine)
    notes = [variant.note, why_not if name in SPECULATIVE else None]
    if name in THEIRS and variant.gamma != measurement.setting.gamma:
        notes.append(f"at gamma {variant.gamma}: this version cannot do more")
    if row.texts and row.texts < len(mine):
        notes.append(f"{row.texts} different text{'s' if row.texts > 1 else ''} in {len(mine)} evaluations")
    elif not row.texts and not measurement.setting.temperature and len(mine) > 1:
        notes.append("texts that repeat count as new ones: which do was not recorded")
    row.note = "; ".join(filter(None, notes)) or None
    if base:
        found = ratio([base[i] for i in shown], mine, text or None)
        row.speedup, row.error, row.margin = found.value, found.error, found.margin
        row.improvement = 100 * (found.value - 1)
    if plain and name in (*SPECULATIVE, THEIRS[1]):
        found = ratio([plain[i] for i in shown], mine, text or None)
        row.over_plain, row.plain_margin = found.value, found.margin
    if row.variant not in DRAFTS.values() and variant.passes:
        row.ms_per_pass = 1000 * sum(variant.seconds) / variant.passes
    _fit(row, measurement, variant, fit, shown, parts is not None)
    times = measurement.own_v if name in FAST else measurement.v
    if name not in MORE and plain and draft and times and row.alpha is not None and row.tokens_per_pass:
        row.c = mean(draft[i] for i in fit) / mean(plain[i] for i in fit)
        v = {n: median(seconds) for n, seconds in times.items()}
        row.predicted = predict(row.alpha, variant.gamma, row.c, v)
        row.predicted_from_pass = row.tokens_per_pass / round_cost(variant.gamma, row.c, v)
    return row


def _fit(row: Row, measurement: Measurement, variant: Variant, fit, shown, others: bool) -> None:
    """What the counts say, into the row: totals of the texts shown, and rates over the full rounds of those to fit."""
    if variant.counts:
        row.passes = Counts.added(variant.counts[i] for i in shown).passes
        counts = Counts.added(variant.counts[i] for i in fit)
        row.fitted = "full rounds of the other texts" if others else "full rounds"
        passes, accepted, rejected = counts.full_passes, counts.full_accepted, counts.full_rejected
        tokens = counts.full_tokens
    else:  # every text of the variant: its counts are not known one by one
        passes, accepted, rejected = variant.passes, variant.accepted, variant.rejected
        tokens = measurement.setting.new * len(variant.seconds)
        row.passes = None if others else passes or None
        row.fitted = "all rounds" if accepted + rejected else None
    verified = accepted + rejected
    row.alpha = accepted / verified if verified and variant.token_by_token else None
    row.accepted_per_round = accepted / passes if verified and passes else None
    row.tokens_per_pass = tokens / passes if row.variant not in DRAFTS.values() and passes else None


def table(measurement: Measurement) -> str:
    """The rows as text in columns; columns that hold nothing are left out.

    over_plain is a column where one of `MORE` was measured; of the others `in_words` tells it.
    """
    found = rows(measurement)
    hidden = () if set(measurement.variants) & set(MORE) else ("over_plain", "plain_margin")
    used = [n for n in COLUMNS if n not in hidden and any(getattr(row, n) is not None for row in found)]
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


def in_words(measurement: Measurement) -> list[str]:
    """What our own forward pass makes of the loops, a line each, in ratios of this one run; none where not measured."""
    found = {row.variant: row for row in rows(measurement)}
    if OWN not in found or OWN_TARGET not in found:
        return []
    own, plain, lines = found[OWN], found[OWN_TARGET], []
    theirs, assisted = (found.get(name, Row(name)) for name in THEIRS)
    if own.over_plain:
        margin = f" +- {own.plain_margin:.2f}" if own.plain_margin is not None else ""
        costs = f" (c = {own.c:.3f}; predicted {own.predicted:.2f})" if own.c else ""
        lines.append(f"own pass: speculative {own.over_plain:.2f}{margin} times as fast as plain{costs}")
    if theirs.tokens_per_second:
        gains = [row.tokens_per_second / theirs.tokens_per_second for row in (plain, own)]
        lines.append(
            "own pass over transformers' generate: plain {:.2f}, speculative {:.2f} times as fast".format(*gains)
        )
    same_draft = THEIRS[1] in found and measurement.variants[THEIRS[1]].gamma == measurement.setting.gamma
    if assisted.ms_per_pass and own.ms_per_pass and same_draft:
        took = f"{own.ms_per_pass:.2f} and {assisted.ms_per_pass:.2f} ms"
        times = assisted.ms_per_pass / own.ms_per_pass
        lines.append(f"a target pass with its draft, own and assisted: {took}, {times:.2f} times as long")
    return lines


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
