"""How fast, measured honestly: loops side by side, one factor varied at a time, recordings that notebooks replay.

Every arm writes the same number of new tokens behind the same prompts.  All arms take turns within an evaluation, in
an order that rotates; the first evaluation warms up and is not counted; a GPU is waited for before each look at the
clock.  Raw seconds and counts are kept, and `rows` derives every figure from them.  Notebook 09.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev

import torch

from .cache import as_model
from .decoding import autoregressive, speculative
from .numbers import at_least_one
from .pairs import TINY_DRAFTS, Pair, load_pair
from .records import summarize
from .sampling import Sampling
from .theory import walltime_improvement
from .timing import bill, clock, cost_ratio, first_token, memory, pass_seconds

TARGET, DRAFT = "target alone", "draft alone"
RULES = {"speculative, google": "google", "speculative, deepmind": "deepmind"}
THEIRS = ("transformers", "transformers, assisted")
ARMS = (TARGET, DRAFT, *RULES, *THEIRS)
FACTORS = {  # of a sweep: the field of `Setting` that it varies, and the values unless others are given
    "gamma": ("gamma", (1, 2, 4, 8)),
    "length": ("new", (50, 100, 200, 500)),
    "temperature": ("temperature", (0.0, 0.3, 0.7, 1.0, 1.5)),
    "prompt": ("prompt", None),  # the pair's own prompts
    "draft": (None, None),  # the embedded pair's three
}
FOLDER = Path(__file__).parent.parent / "notebooks" / "recordings"


@dataclass(frozen=True)
class Setting:
    """What an evaluation is taken at.  new: tokens to write, more than gamma, so that a round can run its course.
    prompt: a key of pair.prompts or a text; None takes the pair's prompts in turn.  ValueError out of range."""

    gamma: int = 4
    new: int = 100
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    prompt: str | None = None

    def __post_init__(self):
        Sampling(self.temperature, self.top_k, self.top_p)  # refuses what it cannot do
        if at_least_one("new", self.new) <= at_least_one("gamma", self.gamma):
            raise ValueError(f"{self.new} new tokens are no full round at gamma {self.gamma}: ask for more of them")
        if not isinstance(self.prompt, str | None):
            raise ValueError(f"prompt must be a text or the name of one of the pair's, got {self.prompt!r}")


def check(pair: Pair, setting: Setting, arms: Sequence[str] = ARMS) -> list[torch.Tensor]:
    """The prompts' ids, each (1, length); ValueError if an arm is unknown or a model cannot hold prompt and text."""
    if not arms or set(arms) - set(ARMS):
        raise ValueError(f"arms must be some of {', '.join(ARMS)}; got {', '.join(map(str, arms)) or 'none'}")
    texts = pair.prompts.values() if setting.prompt is None else [pair.prompts.get(setting.prompt, setting.prompt)]
    prompts = [pair.encode(text) for text in texts]
    longest = max(ids.shape[1] for ids in prompts)
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        most = as_model(model).max_length
        if most is not None and longest + setting.new > most:
            raise ValueError(f"{longest} prompt tokens and {setting.new} new ones do not fit the {name}'s {most}")
    return prompts


def compare(
    pair: Pair,
    setting: Setting | None = None,
    runs: int = 50,
    arms: Sequence[str] = ARMS,
    say: Callable[[str], object] = lambda text: None,
) -> dict:
    """`runs` evaluations of the arms side by side at one setting: raw seconds and counts, for `rows` and `table`.

    say: is told about the progress.  ValueError before any work where `check` or `Setting` refuses, or runs < 1;
    AssertionError where an arm did not write exactly `setting.new` tokens.  The caller's random state stays.
    """
    setting, runs, arms = setting or Setting(), at_least_one("runs", runs), list(arms)
    prompts, gpu = check(pair, setting, arms), pair.device.type == "cuda"
    kept = {a: {"seconds": [], "passes": 0, "accepted": 0, "rejected": 0, "gamma": setting.gamma} for a in arms}
    with torch.random.fork_rng([pair.device] if gpu else []):  # transformers draws from the global generator
        for arm in arms:
            kept[arm] |= _warm_up(pair, setting, arm, prompts[0])
        for i in range(runs):
            say(f"evaluation {i + 1} of {runs}")
            first = i % len(arms)
            for arm in [*arms[first:], *arms[:first]]:
                if "note" not in kept[arm]:
                    _evaluate(pair, setting, arm, prompts[i % len(prompts)], i + 1, kept[arm], gpu)
    n = setting.gamma + 1  # the pass that judges a draft, in the middle of the text, beside one over a single token
    context = max(ids.shape[1] for ids in prompts) + (setting.new - n) // 2
    v = {str(n): rounded(seconds) for n, seconds in pass_seconds(pair.target, (1, n), context).items()}
    return {"pair": pair.name, "setting": asdict(setting), "runs": runs, "v": v, "arms": kept}


def _warm_up(pair: Pair, setting: Setting, arm: str, ids: torch.Tensor) -> dict:
    """One text that is not counted.  It also finds out at which gamma transformers can be measured, if at all."""
    for gamma in sorted({setting.gamma, min(setting.gamma, 3)}, reverse=True):  # 5.15 crashes at a fixed 4 or more
        try:
            _write(pair, replace(setting, gamma=gamma), arm, ids, 0)
            return {"gamma": gamma}
        except Exception as error:
            if arm not in THEIRS:
                raise
            failed = type(error).__name__  # in others' code: a finding, not our end
    return {"note": f"not measurable here ({failed})"}


def _evaluate(pair: Pair, setting: Setting, arm: str, ids: torch.Tensor, seed: int, kept: dict, gpu: bool) -> None:
    """One evaluation of one arm, added to what is kept of it."""
    written: list[tuple] = []
    if gpu:
        torch.cuda.reset_peak_memory_stats(pair.device)
    torch.manual_seed(seed)
    mine = replace(setting, gamma=kept["gamma"])
    try:
        seconds = clock(lambda: written.append(_write(pair, mine, arm, ids, seed)), pair.device)
    except Exception as error:
        if arm not in THEIRS:
            raise
        kept |= {"seconds": [], "note": f"not measurable here ({type(error).__name__})"}
        return
    tokens, *counts = written[0]
    assert tokens == setting.new, f"{arm} wrote {tokens} tokens instead of {setting.new}"
    kept["seconds"] += rounded([seconds])
    for name, count in zip(("passes", "accepted", "rejected"), counts, strict=True):
        kept[name] += count
    if gpu:
        kept["peak"] = max(kept.get("peak", 0), torch.cuda.max_memory_allocated(pair.device))


def _write(pair: Pair, setting: Setting, arm: str, ids: torch.Tensor, seed: int) -> tuple[int, int, int, int]:
    """Write with one arm, through any end-of-text: (new tokens, passes, accepted, rejected)."""
    if arm in THEIRS:
        return _generate(pair, setting, ids, assisted=arm == THEIRS[1])
    options = {"sampling": Sampling(setting.temperature, setting.top_k, setting.top_p), "generator": seed}
    if arm in RULES:
        options |= {"rule": RULES[arm], "gamma": setting.gamma}
        s = summarize(speculative(pair.target, pair.draft, ids, setting.new, **options).rounds)
        return s.emitted, s.passes, s.accepted, s.rejected
    g = autoregressive(pair.target if arm == TARGET else pair.draft, ids, setting.new, **options)
    return len(g.tokens), len(g.tokens), 0, 0


def _generate(pair: Pair, setting: Setting, ids: torch.Tensor, assisted: bool) -> tuple[int, int, int, int]:
    """transformers' own loop.  Its acceptance cannot be read off, but the target's passes can be counted."""
    config, passes, options = pair.draft.generation_config, [], {}
    if setting.temperature:  # it would cut to the 50 likeliest tokens
        options = {"temperature": setting.temperature, "top_k": setting.top_k or 0, "top_p": setting.top_p or 1.0}
    fixed = {  # the one place where its draft length can be set; the threshold would stop an unsure draft early
        "num_assistant_tokens": setting.gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    before = {name: getattr(config, name, None) for name in fixed}
    hook = pair.target.register_forward_hook(lambda *_: passes.append(1))
    log = logging.getLogger("transformers.generation.utils")
    log.addFilter(_not_about_itself)
    try:
        for name, value in fixed.items():
            setattr(config, name, value)
        text = pair.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=pair.draft if assisted else None,
            do_sample=bool(setting.temperature),
            max_new_tokens=setting.new,
            eos_token_id=None,
            pad_token_id=0,
            **options,
        )
    finally:
        hook.remove()
        log.removeFilter(_not_about_itself)
        for name, value in before.items():
            setattr(config, name, value)
    return text.shape[1] - ids.shape[1], len(passes), 0, 0


def _not_about_itself(record: logging.LogRecord) -> bool:
    """transformers warns its caller of how it calls its own assistant: nothing that the caller could change."""
    return "Passing `generation_config` together with" not in str(record.msg)


def sweep(
    pair: Pair,
    factor: str,
    values: Sequence | dict[str, Pair] | None = None,
    setting: Setting | None = None,
    runs: int = 10,
    arms: Sequence[str] = (TARGET, DRAFT, "speculative, google"),
    say: Callable[[str], object] = lambda text: None,
) -> list[dict]:
    """One factor varied around one setting: `compare` at each value, which every result holds as "value".

    factor: gamma | length | temperature | prompt | draft.  values: None takes those of `FACTORS`; those of "draft" are
    pairs by name.  ValueError, before the first measurement, where one of them would be refused.
    """
    if factor not in FACTORS:
        raise ValueError(f"a sweep varies one of {', '.join(FACTORS)}, got {factor!r}")
    setting, (field, usual), runs = setting or Setting(), FACTORS[factor], at_least_one("runs", runs)
    if factor == "draft":
        if values is None and not pair.name.startswith("tiny"):
            raise ValueError(f"the drafts to compare must be named: which others fit {pair.name} is not known here")
        values = values or {name: load_pair("tiny", name, device=pair.device) for name in TINY_DRAFTS}
        points = [(name, other, setting) for name, other in values.items()]
    else:
        points = [(x, pair, replace(setting, **{field: x})) for x in values or usual or pair.prompts]
    for _, other, at in points:
        check(other, at, arms)
    return [
        {"value": x, **compare(other, at, runs, arms, lambda text, x=x: say(f"{factor} {x}: {text}"))}
        for x, other, at in points
    ]


# --- what it says ---------------------------------------------------------------------------------------------------

COLUMNS = {  # of the table, and how each is written
    "arm": "{}",
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


def rows(measurement: dict) -> list[dict]:
    """Each arm's figures, from a measurement of `compare`; None where one has no meaning.

    seconds, sd: mean and standard deviation of a text's time.  speedup: the target's mean time over the arm's, which
    is also the ratio of their tokens per second.  speedup_sd: over sqrt(runs) it is the speed-up's standard error;
    from each evaluation's pull on it, (base - speedup * seconds) / mean seconds.  improvement: in percent.
    predicted: from alpha, gamma, c (the draft's loop over the target's) and v(gamma + 1).  predicted_from_pass: the
    same from the tokens per pass that were counted, not those that alpha promises.
    """
    new, arms, found = measurement["setting"]["new"], measurement["arms"], []
    base, draft = ((arms.get(name) or {}).get("seconds") for name in (TARGET, DRAFT))
    v = {int(n): median(seconds) for n, seconds in measurement["v"].items()}
    for name, arm in arms.items():
        row = {**dict.fromkeys((*COLUMNS, "speedup_sd", "predicted_from_pass")), "arm": name, "note": arm.get("note")}
        found.append(row)
        if not (times := arm["seconds"]):
            continue
        judged, gamma = arm["accepted"] + arm["rejected"], arm["gamma"]
        row["seconds"], row["sd"] = mean(times), stdev(times) if len(times) > 1 else 0.0
        row["tokens_per_second"], row["peak"] = new / row["seconds"], arm.get("peak")
        row["tokens_per_pass"] = None if name == DRAFT or not arm["passes"] else new * len(times) / arm["passes"]
        row["alpha"] = arm["accepted"] / judged if judged else None
        if gamma != measurement["setting"]["gamma"]:
            row["note"] = f"at gamma {gamma}: this version cannot do more"
        if base:
            row["speedup"] = mean(base) / mean(times)
            pulls = [(a - row["speedup"] * b) / mean(times) for a, b in zip(base, times, strict=True)]
            row["speedup_sd"] = stdev(pulls) if len(times) > 1 else 0.0
            row["improvement"] = 100 * (row["speedup"] - 1)
        if base and draft and judged:
            c, cost = mean(draft) / mean(base), v[gamma + 1] / v[1]
            row["predicted"] = walltime_improvement(row["alpha"], gamma, c, lambda n, cost=cost: cost)
            row["predicted_from_pass"] = row["tokens_per_pass"] / (gamma * c + cost)
    return found


def table(measurement: dict) -> str:
    """The rows as text in columns; columns that hold nothing are left out."""
    found = rows(measurement)
    used = [name for name in COLUMNS if any(row[name] is not None for row in found)]
    lines = [[name.replace("_", " ") for name in used]]
    lines += [["" if row[name] is None else COLUMNS[name].format(row[name]) for name in used] for row in found]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [name in ("arm", "note") for name in used]
    return "\n".join(
        "  ".join(x.ljust(w) if a else x.rjust(w) for x, w, a in zip(line, widths, left, strict=True)).rstrip()
        for line in lines
    )


# --- recordings -----------------------------------------------------------------------------------------------------


def machine(device: torch.device) -> str:
    """The model of the processor that computes, GPU or CPU; never the name of the computer."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    found = None
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1].strip() if found else platform.processor() or platform.machine()


def record(pair: Pair, runs: int = 10, say: Callable[[str], object] = lambda text: None) -> dict:
    """One run of all that the notebooks replay, as a dictionary for JSON.  It takes minutes."""
    import transformers

    ids = pair.encode(next(iter(pair.prompts.values())))
    long = torch.cat([ids] * (500 // ids.shape[1] + 1), 1)[:, :500]
    counts = (*range(1, 10), 12, 16, 24, 32, 48, 64)
    say("single passes")
    v = {name: pass_seconds(m, counts) for name, m in (("target", pair.target), ("draft", pair.draft))}
    rounds = speculative(pair.target, pair.draft, ids, 60, generator=1).rounds
    say("the bill of a round")
    bills = bill(pair, ids, (0, *FACTORS["gamma"][1]), Setting().new, runs)
    factors = [f for f in FACTORS if f != "draft" or pair.name.startswith("tiny")]
    return {
        "machine": machine(pair.device),
        "device": f"{pair.device.type}, {1 if pair.name.startswith('tiny') else torch.get_num_threads()} CPU thread(s)",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "pair": pair.name,
        "date": datetime.date.today().isoformat(),
        "v": {name: {str(n): rounded(seconds) for n, seconds in times.items()} for name, times in v.items()},
        "c": rounded(cost_ratio(pair)),
        "bill": {str(g): dict(zip(parts, rounded(parts.values()), strict=True)) for g, parts in bills.items()},
        "memory": memory(pair),
        "first_token": {name: rounded(seconds) for name, seconds in first_token(pair, long).items()},
        "rounds": [
            {"drafted": [pair.decode([t]) for t in r.drafted.tolist()], "accepted": r.accepted, "origin": r.origin}
            | {"added": pair.decode([r.token])}
            for r in rounds
        ],
        "comparison": compare(pair, Setting(), runs, say=lambda text: say(f"all arms: {text}")),
        "sweeps": {factor: sweep(pair, factor, runs=runs, say=say) for factor in factors},
    }


def recordings(folder: str | Path | None = None) -> list[dict]:
    """The recordings of a folder (None: the notebooks'), in the order of their file names, which they hold as "file".

    What a file lacks is empty, {} or [].  A file that is no recording is left out, and one line says so.
    """
    empty = {"v": {}, "c": [], "bill": {}, "comparison": {}, "sweeps": {}, "rounds": []}
    empty |= {"memory": {}, "first_token": {}}
    texts, found = ("machine", "pair", "device", "torch", "transformers", "date"), []
    for file in sorted(Path(folder or FOLDER).glob("*.json")):
        try:
            r = {**dict.fromkeys(texts[2:], ""), **empty, **json.loads(file.read_text(encoding="utf-8"))}
            wrong = [k for k in texts if not isinstance(r.get(k), str)]
            wrong += [k for k in empty if type(r[k]) is not type(empty[k])]
            if wrong:
                raise ValueError(f"{wrong[0]} is not what record writes")
            for m in [r["comparison"], *(m for points in r["sweeps"].values() for m in points)]:
                if m:
                    rows(m)
            for b in r["bill"].values():
                sum(b[part] for part in ("prompt", "target", "draft", "rest", "rounds"))
            lists = [times for curve in r["v"].values() for times in curve.values()] + ([r["c"]] if r["c"] else [])
            if not all(median(times) > 0 for times in lists):
                raise ValueError("a time is not positive")
            found.append({**r, "file": file.name})
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            print(f"{file.name} is left out: it is no recording ({type(error).__name__}: {error}).")
    return found


def rounded(seconds: Iterable[float]) -> list[float]:
    return [float(f"{x:.4g}") for x in seconds]
