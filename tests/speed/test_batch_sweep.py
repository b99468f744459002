"""A sweep of batch sizes: what is run and counted, what is derived from it, its file and its command.  No real time is
asserted: where seconds matter, they pass only where a pass over several texts is made to cost some."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib import __main__ as cli
from spec_lib import benchmark
from spec_lib import rows as rectangles
from spec_lib.benchmark import BatchPoint, BatchSweep, BatchTimes, Counts, batch_records, batch_timing, batches
from tests.helpers.models import tiny_of
from tests.helpers.tokenizers import Words

PROMPTS = {"one": "1 2 3", "two": "4 5", "three": "6 7 8 9"}


@pytest.fixture
def pair(models):
    return sl.Pair(*models, Words(), prompts=PROMPTS)


@pytest.fixture
def priced(monkeypatch):
    """Time passes in passes alone: the target's (two layers) costs 10 and 1 for each token, the draft's 1."""
    now, real = [0.0], rectangles.Rows.feed

    def feed(self, first, ids, keep=None):
        now[0] += 10.0 + sum(map(len, ids)) if len(self.model.blocks) == 2 else 1.0
        return real(self, first, ids, keep)

    monkeypatch.setattr(rectangles.Rows, "feed", feed)
    monkeypatch.setattr(batch_timing, "process_time", lambda: now[0])
    monkeypatch.setattr(batch_timing, "clock_of", lambda pair: batch_records.CPU)
    monkeypatch.setattr(batches, "clock_of", lambda pair: batch_records.CPU)


# --- what is run ------------------------------------------------------------------------------------------------------


def test_all_write_the_same_prompts_with_the_same_seeds_in_turn(pair, monkeypatch):
    """Plain decoding and each gamma, in an order that rotates; each batch begins with the texts of the smaller one."""
    calls, real = [], sl.speculative_batch

    def write(target, draft, prompts, new, **options):
        texts = [(tuple(ids[0].tolist()), seed) for ids, seed in zip(prompts, options["generators"], strict=True)]
        calls.append((0 if draft is None else options["gamma"], new, tuple(texts), options["slots"]))
        assert options["sampling"] == sl.Sampling(0.7)
        return real(target, draft, prompts, new, **options)

    monkeypatch.setattr(batches, "speculative_batch", write)
    benchmark.batch_sweep(pair, (4, 1), (3, 1), 6, sl.Sampling(0.7), runs=3)
    assert [gamma for gamma, *_ in calls] == [0, 1, 3] * 2 + [1, 3, 0] * 2 + [3, 0, 1] * 2 + [0, 1, 3] * 2
    assert [new for _, new, *_ in calls] == [4] * 6 + [6] * 18  # the first run warms up, with short texts
    assert [(len(texts), slots) for *_, texts, slots in calls] == [
        (b, b) for _ in range(4) for b in (1, 4) for _ in "abc"
    ]
    seen = set()
    for i in range(6, len(calls), 6):
        (alone,), (together,) = ({texts for *_, texts, _ in calls[j : j + 3]} for j in (i, i + 3))
        assert together[0] == alone[0] and len({seed for _, seed in together}) == 4
        assert [ids for ids, _ in together] == [*(ids for ids, _ in together[:3]), together[0][0]]  # in turn
        seen |= {alone[0]}
    assert len({ids for ids, _ in seen}) == 3 and len({seed for _, seed in seen}) == 3


@pytest.mark.parametrize("own", [True, False])
def test_counts_are_those_of_the_texts(pair, own):
    pair = pair.fast() if own else pair
    sweep = benchmark.batch_sweep(pair, (1, 3), (2, 4), 9, runs=2)
    assert (sweep.sizes, sweep.gammas, sweep.runs, sweep.new) == ([1, 3], [2, 4], 2, 9)
    assert (sweep.forward, sweep.pair, sweep.prompt) == ("own" if own else "transformers", pair.name, None)
    assert sweep.machine and sweep.device.startswith("cpu") and sweep.torch == torch.__version__
    prompts = [pair.encode(text) for text in PROMPTS.values()]
    for point in sweep.points:
        assert set(point.v) == {1, 3, 5} and all(len(x) == 4 for x in [*point.v.values(), point.draft_v])
        for gamma, times in point.variants.items():
            assert all(len(x) == 2 for x in vars(times).values()) and min(times.seconds) > 0
            for run, (seconds, counts, steps, parts) in enumerate(
                zip(times.seconds, times.counts, times.steps, times.parts, strict=True), 1
            ):
                assert counts.passes + counts.accepted == 9 * point.size  # as many tokens, plain or not
                assert sum(parts) <= 1.01 * seconds and parts.target > 0 and (parts.draft > 0) == (gamma > 0)
                texts = sl.speculative_batch(
                    pair.target, pair.draft if gamma else None, [prompts[(run + j) % 3] for j in range(point.size)], 9,
                    gamma=gamma or 1, generators=[100_000 * run + j for j in range(point.size)], slots=point.size,
                )  # fmt: skip
                assert counts == Counts.added(Counts.of(g.rounds, gamma) for g in texts)
                assert steps == max(len(g.rounds) for g in texts)
        assert point.variants[0].steps == [9, 9] and point.variants[0].text == [0, 1]


def test_seconds_and_their_parts_and_what_the_passes_predict(pair, priced):
    """With time in passes alone nothing is left over, and of one text the prediction comes true after its prompt."""
    sweep = benchmark.batch_sweep(pair.fast(), (1, 3), (2,), 30, sl.Sampling(0), prompt="two", runs=2)
    for point, (plain, row) in zip(
        sweep.points, zip(*[iter(benchmark.batch_rows(sweep))] * 2, strict=True), strict=True
    ):
        b = point.size
        assert point.v == {1: [10.0 + b] * 4, 3: [10.0 + 3 * b] * 4} and point.draft_v == [1.0] * 4
        for gamma, times in point.variants.items():
            texts = sl.speculative_batch(
                pair.fast().target, pair.fast().draft if gamma else None, [pair.encode("4 5")] * b, 30, gamma=2,
                sampling=sl.Sampling(0), slots=b,
            )  # fmt: skip
            rounds = [r for g in texts for r in g.rounds]
            for seconds, steps, parts in zip(times.seconds, times.steps, times.parts, strict=True):
                assert parts.target == 10 * steps + sum(len(r.drafted) + 1 for r in rounds)
                assert parts.draft == sum(max(len(g.rounds[i].drafted) for g in texts) for i in range(steps)) * bool(
                    gamma
                )
                assert seconds == sum(parts) and parts.prompts > 0
        assert plain.shares.rest == pytest.approx(0) and row.shares.rest == pytest.approx(0)
        assert sum(row.shares) == pytest.approx(1) and row.busy == b  # equal texts end together
        assert row.predicted == pytest.approx(row.tokens_per_pass * (10 + b) / (10 + 3 * b + 2))
        assert row.after_prompts == pytest.approx(row.predicted, rel=0.1)  # but for the last, cut round
        assert row.speedup < row.after_prompts
        assert row.margin is None  # the same texts in both runs: nothing says how far others would be


class Rectangle:
    """A model and its rectangle at once, which says how it was fed."""

    vocab, device, max_length, length = 9, torch.device("cpu"), 20, 0

    def __init__(self):
        self.calls, self.lengths, self.model = [], [], self

    def fresh(self):
        return self

    def rows(self, slots):
        self.lengths = [7] * slots
        return self

    def clear(self, slot):
        self.lengths[slot] = 0

    def feed(self, first, ids, keep=None):
        self.calls.append((first, [len(x) for x in ids], list(self.lengths)))
        for i, x in enumerate(ids):
            self.lengths[first + i] += len(x)
        return list(ids)


def test_passes_over_a_batch_take_turns_after_the_same_context():
    model = Rectangle()
    found = benchmark.batch_passes(model, 2, (1, 3), context=4, runs=2)
    assert {n: len(seconds) for n, seconds in found.items()} == {1: 2, 3: 2}
    assert model.calls[:2] == [(0, [4], [0, 7]), (1, [4], [4, 0])]
    assert model.calls[2:] == [(0, [n, n], [4, 4]) for n in (1, 3, 3, 1, 1, 3)]  # one turn warms up


@pytest.mark.parametrize(
    "change, named",
    [
        ({"size": 0}, "size must be a whole number of at least 1"),
        ({"counts": (0,)}, "counts must be whole numbers of at least 1"),
        ({"counts": ()}, "counts must be whole numbers of at least 1"),
        ({"context": 0}, "context must be"),
        ({"runs": 0}, "runs must be"),
        ({"context": 18}, "18 \\+ 3 tokens are more than the model's 20 positions"),
    ],
)
def test_passes_that_cannot_be_timed(change, named):
    model = Rectangle()
    with pytest.raises(ValueError, match=named):
        benchmark.batch_passes(model, **{"size": 2, "counts": (1, 3), "context": 4, "runs": 2, **change})
    assert not model.calls


def test_a_clocked_model_tells_prompts_from_other_passes(monkeypatch):
    """A pass that begins each of its texts is one over prompts, whoever reads beside them."""
    now, model = [0.0], Rectangle()

    def feed(self, first, ids, keep=None):
        now[0] += 5.0

    monkeypatch.setattr(batch_timing, "process_time", lambda: now[0])
    monkeypatch.setattr(Rectangle, "feed", lambda *given: feed(*given) or [])
    spent = {"prompts": 0.0, "target": 0.0}
    clocked = batch_timing.ClockedBatch(model, spent, "target", batch_records.CPU).fresh().rows(3)
    for lengths, first, count in (([0, 4, 4], 0, 1), ([3, 4, 0], 0, 3), ([3, 4, 0], 2, 1), ([3, 0, 0], 1, 2)):
        model.lengths[:] = lengths
        clocked.feed(first, [torch.zeros(1)] * count)
    assert spent == {"prompts": 15.0, "target": 5.0} and clocked.lengths is model.lengths


def test_which_clock():
    def a_pair(device, name):
        return SimpleNamespace(device=torch.device(device), name=name)

    assert batch_timing.clock_of(a_pair("cpu", "tiny (embedded)")) == batch_records.CPU
    assert batch_timing.clock_of(a_pair("cuda", "tiny (embedded)")) == batch_records.WALL
    assert batch_timing.clock_of(a_pair("cpu", "a/b")) == batch_records.CPU  # tests have one thread
    torch.set_num_threads(2)
    try:
        assert batch_timing.clock_of(a_pair("cpu", "a/b")) == batch_records.WALL
        assert batch_timing.clock_of(a_pair("cpu", "tiny (embedded)")) == batch_records.CPU
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"sizes": (1, 0)}, "batch size must be a whole number of at least 1, got 0"),
        ({"sizes": ()}, "there is no batch size"),
        ({"gammas": (0, 2)}, "gamma must be a whole number of at least 1, got 0"),
        ({"gammas": ()}, "there is no gamma"),
        ({"new": 4, "gammas": (2, 4)}, "4 new tokens are no full round at gamma 4"),
        ({"new": 62}, "do not fit the target's 64"),
        ({"runs": 0}, "runs must be a whole number"),
        ({"prompt": 3}, "prompt must be a text"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(pair, change, named, monkeypatch):
    monkeypatch.setattr(batches, "speculative_batch", lambda *a, **k: pytest.fail("written"))
    with pytest.raises(ValueError, match=named):
        benchmark.batch_sweep(pair, **{"sizes": (1,), "gammas": (2,), "new": 9, **change})


def one_by_one() -> sl.Pair:
    """A pair that cannot read several texts in one pass."""
    return sl.Pair(tiny_of("bloom"), tiny_of("bloom"), Words(), prompts=PROMPTS)


def test_a_pair_that_reads_one_text_at_a_time_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(batches, "speculative_batch", lambda *a, **k: pytest.fail("written"))
    with pytest.raises(ValueError, match="the target, BloomForCausalLM, cannot read several texts in one pass"):
        benchmark.batch_sweep(one_by_one(), (1, 2), (2,), 9)


# --- what is derived --------------------------------------------------------------------------------------------------


def times(seconds, passes=60, accepted=0, steps=20, parts=((1.0, 4.0, 0.0),) * 2, text=(0, 1)) -> BatchTimes:
    counts = Counts(passes, accepted, 3, passes - 6, passes - 6 + accepted, accepted, 3)
    return BatchTimes(list(seconds), [counts] * 2, [steps] * 2, list(text), [batch_records.Parts(*x) for x in parts])


def a_sweep(*points: BatchPoint, **changes) -> BatchSweep:
    here = ("AMD", "cpu, 1 CPU thread(s)", "2.13", "5.24", "2026-01-01", "tiny", "own", 30, sl.Sampling(), None, 2)
    return replace(BatchSweep(*here, batch_records.CPU, [0.5, 0.75], list(points)), **changes)


def a_point(size: int, plain=(8.0, 12.0), two=(4.0, 6.0), four=(5.0, 5.0)) -> BatchPoint:
    variants = {0: times(plain), 2: times(two, 20, 40, 15, ((1.0, 2.0, 0.5),) * 2), 4: times(four, 12, 48, 10)}
    return BatchPoint(size, variants, {1: [1.0, 3.0, 2.0], 3: [3.0], 5: [5.0]}, [0.5])


SWEEP = a_sweep(
    a_point(1), a_point(4, two=(10.0, 9.0), four=(12.0, 11.0)), a_point(16, two=(20.0, 30.0), four=(9.0, 14.0))
)


def test_rows_derive_every_figure():
    rows = benchmark.batch_rows(SWEEP)
    assert [(r.size, r.gamma) for r in rows] == [(b, g) for b in (1, 4, 16) for g in (0, 2, 4)]
    plain, two, four = rows[:3]
    assert (plain.seconds, plain.tokens_per_second, plain.busy, plain.speedup, plain.predicted) == (
        10,
        3,
        3,
        None,
        None,
    )
    assert rows[3].tokens_per_second == 4 * 30 / 10
    found = benchmark.ratio([8.0, 12.0], [5.0, 5.0])
    assert (four.speedup, four.error, four.margin) == (found.value, found.error, found.margin) and four.margin > 1
    assert (two.speedup, two.margin) == (2.0, pytest.approx(0))  # paired: a slow spell met both
    assert two.tokens_per_pass == 54 / 14 and two.busy == 20 / 15
    assert two.predicted == pytest.approx(54 / 14 * 2 / (3 + 2 * 0.5))  # medians: v(1) is 2
    assert two.shares == (0.2, 0.4, 0.1, pytest.approx(0.3)) and two.after_prompts == (20 - 2) / (10 - 2)
    assert benchmark.predicted_speedup(3.0, 4, {1: [2.0], 5: [4.0]}, [0.5]) == 3 * 2 / (4 + 4 * 0.5)


def test_without_parts_or_full_rounds_the_figures_are_left_out():
    point = a_point(1)
    for variant in point.variants.values():
        variant.parts, variant.counts = [], [c._replace(full_passes=0, full_tokens=0) for c in variant.counts]
    sweep = a_sweep(point)
    for row in benchmark.batch_rows(sweep):
        assert row.shares is row.after_prompts is row.tokens_per_pass is row.predicted is None
    assert "prompts" not in benchmark.batch_table(sweep) and "share_prompts" in benchmark.batch_csv(sweep)


def test_the_fastest_gamma_and_those_it_is_not_told_apart_from():
    assert benchmark.best_gammas(SWEEP) == {1: (2, (4,)), 4: (2, (0,)), 16: (0, (4,))}
    repeated = a_point(1)
    repeated.variants[4].text = [0, 0]
    repeated.variants[4].seconds = [50.0, 50.0]
    assert benchmark.best_gammas(a_sweep(repeated))[1] == (2, (4,))  # one batch, timed twice, is no evidence


def test_in_words():
    def words(*points):
        return benchmark.batch_words(a_sweep(*points))

    good, bad = {"two": (4.0, 6.0)}, {"two": (16.0, 24.0), "four": (16.0, 24.0)}
    assert words(a_point(1, **good), a_point(4, **good), a_point(16, **bad)) == [
        "Fastest at batch 1 gamma 2 (2.00 times as fast as plain), at batch 16 plain decoding",
        "Speculation pays: gamma 2 up to batch 4; gamma 4 not at batch 1",  # whose interval is wide
        "Plain decoding at batch 16 writes 16.0 times the tokens per second of batch 1",
    ]
    assert words(a_point(1, **bad), a_point(4, **good))[1].startswith("Speculation pays: gamma 2 not at batch 1;")
    assert words(a_point(2, **good))[0] == "Fastest at batch 2 gamma 2 (2.00 times as fast as plain)"
    assert len(words(a_point(2, **good))) == 2


def test_the_table_has_a_line_a_size_in_each_part():
    parts = benchmark.batch_table(SWEEP).split("\n\n")
    assert len(parts) == 6 and all(len(part.splitlines()) == 5 for part in parts)
    measured = parts[0].splitlines()
    assert measured[1].split("  ")[-1] == "fastest" and "gamma 2" in measured[1]
    assert measured[2].split()[:4] == ["1", "3", "2.00", "+-0.00"]
    assert measured[2].endswith("gamma 2 (not told apart: gamma 4)") and "plain (not told apart" in measured[4]
    assert "20/40/10/30" in parts[-1] and parts[2].splitlines()[2].split() == ["1", "1.93", "2.57"]


def test_csv_has_the_setting_and_every_figure():
    lines = list(csv.DictReader(io.StringIO(benchmark.batch_csv(SWEEP))))
    assert len(lines) == 9 and lines[1]["temperature"] == "1.0" and lines[1]["share_target"] == "0.4"
    assert lines[0]["speedup"] == "" and float(lines[1]["speedup"]) == 2.0 and "shares" not in lines[0]
    assert lines[1]["timed"] == "process CPU seconds" and lines[1]["new"] == "30" and lines[4]["size"] == "4"


# --- its file ---------------------------------------------------------------------------------------------------------


def test_what_was_measured_is_read_back(pair, tmp_path, capsys):
    measured = benchmark.batch_sweep(pair, (1, 2), (2,), 9, sl.Sampling(0.5, 7, 0.9), prompt="two", runs=2)
    for sweep in (measured, SWEEP, a_sweep(a_point(3), load=[], timed=batch_records.WALL)):
        (tmp_path / "a.json").write_text(sweep.to_json(), encoding="utf-8")
        assert benchmark.batch_recording(tmp_path / "a.json") == sweep
    assert benchmark.recordings(tmp_path) == [] and capsys.readouterr().out == ""  # of another kind: without a word


BROKEN = {  # what is changed in the file -> what is said of it
    "no recording of batch sizes": lambda d: d.pop("records"),
    "that this release can read": lambda d: d.update(version=2),
    "is not what bench --sweep batch writes \\(KeyError: 'runs'\\)": lambda d: d.pop("runs"),
    "runs must be a whole number of at least 1, got 0": lambda d: d.update(runs=0),
    "seconds of batch 1, gamma 2 are 2, but runs are 3": lambda d: (
        d.update(runs=3) or d["points"][0]["variants"].pop("0")
    ),
    "seconds of batch 1, gamma 0 must be a positive number": lambda d: plain(d)["seconds"].__setitem__(0, 0),
    "counts of batch 1, gamma 0 are 1, but runs are 2": lambda d: plain(d)["counts"].pop(),
    "a count of batch 1, gamma 0 must be a whole": lambda d: plain(d)["counts"][0].__setitem__(0, 1.5),
    "counts of batch 1, gamma 0 do not add up": lambda d: plain(d)["counts"][0].__setitem__(4, 900),
    "steps of batch 1, gamma 0 must be a whole": lambda d: plain(d)["steps"].__setitem__(0, 0),
    "parts of batch 1, gamma 0 are 1, but": lambda d: plain(d)["parts"].pop(),
    "batch 1 needs plain decoding": lambda d: d["points"][0]["variants"].pop("0"),
    "v at batch 1 lacks the passes over \\[3\\]": lambda d: d["points"][0]["v"].pop("3"),
    "v at batch 1 over 1 tokens must be a list": lambda d: d["points"][0]["v"].update({"1": []}),
    "v of the draft at batch 1": lambda d: d["points"][0].update(draft_v=[-1]),
    "were not measured at the same gammas": lambda d: d["points"][0]["variants"].pop("2"),
    "the batch sizes must grow": lambda d: d["points"].reverse(),
    "there must be one, got \\[\\]": lambda d: d.update(points=[]),
    "temperature must be": lambda d: d["sampling"].update(temperature=-1),
    "timed must be": lambda d: d.update(timed="minutes"),
    "is not a text": lambda d: d.update(machine=3),
    "load must be a number": lambda d: d.update(load=["high"]),
}


def plain(data: dict) -> dict:
    return data["points"][0]["variants"]["0"]


@pytest.mark.parametrize("said", BROKEN)
def test_what_is_wrong_with_a_file_is_said_in_one_sentence(said, tmp_path):
    data = json.loads(SWEEP.to_json())
    BROKEN[said](data)
    (tmp_path / "b.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"^b.json cannot be shown: .*{said}") as error:
        benchmark.batch_recording(tmp_path / "b.json")
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_json(tmp_path):
    for text in ("{", "[]", '{"a": NaN}'):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(ValueError, match=r"^b\.json cannot be shown: it "):
            benchmark.batch_recording(tmp_path / "b.json")


# --- its command ------------------------------------------------------------------------------------------------------


def bench(*arguments: str) -> int:
    return cli.main(["bench", "--sweep", "batch", *arguments])


def test_the_command_prints_and_writes_three_files(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pair)
    out = tmp_path / "mine"
    words = ["--values", "2", "1", "--runs", "2", "--max-new-tokens", "9", "--gamma", "3", "--prompt", "two"]
    assert bench(*words, "--out", str(out)) == 0
    said = capsys.readouterr()
    assert said.err == "" and "Written: " in said.out and "Timed in process CPU seconds." in said.out
    assert sorted(f.name for f in tmp_path.iterdir()) == ["mine.csv", "mine.json", "mine.png"]
    sweep = benchmark.batch_recording(tmp_path / "mine.json")
    assert (sweep.sizes, sweep.gammas, sweep.new, sweep.prompt, sweep.forward) == ([1, 2], [3], 9, "two", "own")
    assert benchmark.batch_table(sweep) in said.out and benchmark.batch_words(sweep)[0] in said.out
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    assert bench(*words, "--out", str(out), "--forward", "transformers") == 0
    assert benchmark.batch_recording(tmp_path / "mine.json").forward == "transformers"


def test_the_usual_sizes_gammas_and_length(pair, tmp_path, monkeypatch):
    calls = []

    def sweep(pair, **options):
        calls.append(options)
        return SWEEP

    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pair)
    monkeypatch.setattr(benchmark, "batch_sweep", sweep)
    assert bench("--out", str(tmp_path / "b")) == 0 and bench("--gamma", "4", "--out", str(tmp_path / "b")) == 0
    first, second = ({**call, "say": None} for call in calls)
    assert first == {"sizes": (1, 2, 4, 8, 16, 32), "gammas": (1, 2, 4, 6), "new": 64, "sampling": sl.Sampling(),
                     "prompt": None, "runs": 10, "say": None}  # fmt: skip
    assert second == {**first, "gammas": [4]}


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--values", "0"], "batch size must be a whole number of at least 1, got 0"),
        (["--values", "1", "x"], "--values of batch must be whole numbers, got 1 x"),
        (["--gamma", "0"], "gamma must be a whole number of at least 1, got 0"),
        (["--max-new-tokens", "6"], "6 new tokens are no full round at gamma 6"),
        (["--temperature", "-1"], "temperature must be"),
        (["--runs", "0"], "--runs must be a whole number of at least 1, got 0"),
        (["--more"], "--sweep batch has no --more"),
        (["--target", "a/b"], "needs a draft"),
        (["--out", ""], "--out must name a file"),
    ],
)
def test_bad_arguments_end_in_one_sentence_before_anything_is_loaded(arguments, named, capsys, monkeypatch):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pytest.fail("loaded"))
    assert bench(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and named in err and err.count("\n") == 1


@pytest.mark.parametrize("forward", [[], ["--forward", "transformers"], ["--forward", "own"]])
def test_a_pair_that_reads_one_text_at_a_time_is_one_sentence(forward, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: one_by_one())
    monkeypatch.setattr(batches, "speculative_batch", lambda *a, **k: pytest.fail("written"))
    assert bench("--max-new-tokens", "9", *forward, "--out", str(tmp_path / "b")) == 2
    err = capsys.readouterr().err
    assert "BloomForCausalLM, cannot read several texts in one pass" in err
    assert err.count("\n") == 1 and not list(tmp_path.iterdir())
