"""Coloured text and figures: the data behind them."""

import contextlib
import re
from dataclasses import replace

import matplotlib
import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark, plots
from tests.helpers.figures import heights
from tests.helpers.tokenizers import Bytes

matplotlib.use("Agg")


def a_round(drafted, accepted, token, origin):
    return sl.Round(torch.tensor(drafted, dtype=torch.int64), accepted, token, origin)


ROUNDS = [
    a_round([97, 98, 99], 3, 100, "bonus"),
    a_round([101, 60, 103], 1, 38, "resampled"),
    a_round([], 0, 36, "plain"),
]
TEXT = "abcde&$"


def generation(prompt, rounds):
    tokens = torch.tensor([t for r in rounds for t in r.tokens])
    return sl.Generation(tokens, torch.cat([prompt, tokens[None]], 1), rounds)


@pytest.mark.parametrize("text", ["naïve ☕ and 🐉!", "漢字かな" * 30, "plain"])
def test_pieces_join_to_the_text_and_hold_half_characters(text):
    emitted = [(b, "accepted" if i % 2 else "bonus") for i, b in enumerate(text.encode())]
    found = list(plots.pieces(Bytes(), torch.tensor([[72, 105]]), emitted))
    assert "".join(piece for piece, _ in found) == text
    assert len(found) == len(text) and not any("\ufffd" in piece for piece, _ in found)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xe6\xbc\xa2",
        b"\xff\xff\xf0\x9f\x90\x89a",
        b"\xe6\xbca",
        b"\xf0\x9f\xe6\xbc\xa2",
        b"\x80" * 9,
        b"a\xe6\xbc\xe6\xbc",
    ],
)
def test_pieces_of_bytes_that_are_no_text_join_to_what_decodes(data):
    emitted = [(b, "accepted" if i % 2 else "bonus") for i, b in enumerate(data)]
    found = list(plots.pieces(Bytes(), torch.tensor([[72, 105]]), emitted))
    assert "".join(piece for piece, _ in found) == data.decode("utf-8", "replace")


def test_a_byte_that_is_no_text_keeps_its_own_origin():
    emitted = [(0xFF, "resampled"), *[(b, "accepted") for b in "漢".encode()]]
    assert list(plots.pieces(Bytes(), torch.tensor([[72]]), emitted)) == [("\ufffd", "resampled"), ("漢", "accepted")]


def test_nothing_to_draw_is_said_in_one_sentence():
    for draw in (lambda: plots.plot_rounds(Bytes(), [], "x"), lambda: plots.plot_tapes([], "x")):
        with pytest.raises(ValueError, match="no round to draw"):
            draw()
    with pytest.raises(ValueError, match="trace=True"):
        plots.plot_tapes(ROUNDS, "x")


def test_a_text_that_ends_inside_a_character_is_still_shown():
    found = list(plots.pieces(Bytes(), torch.tensor([[72]]), [(b, "plain") for b in "a🐉".encode()[:-1]]))
    assert found[0] == ("a", "plain") and "\ufffd" in found[-1][0]


def test_origins_name_each_emitted_token():
    assert plots.origins(ROUNDS) == ["accepted"] * 3 + ["bonus", "accepted", "resampled", "plain"]


def test_html_shows_every_token_once_escaped_and_readable_without_colour():
    prompt = torch.tensor([[60, 62]])
    html = plots.html_text(Bytes(), prompt, generation(prompt, ROUNDS))
    body, legend = html.split("<br><small>")
    assert re.sub("<[^>]+>", "", body) == "&lt;&gt;" + TEXT.replace("&", "&amp;")
    for name in ("accepted", "resampled", "bonus"):
        assert name in legend and plots.SHAPE[name] in legend
        assert "border-bottom" in plots.CSS[name]  # a shape, not only a colour
    assert (
        len(
            {
                re.search(r"border-bottom:[^;]*?(solid|double|dotted)", plots.CSS[n])[1]
                for n in ("accepted", "resampled", "bonus")
            }
        )
        == 3
    )


def test_the_shapes_stay_where_a_page_drops_styles():
    """As GitHub does with a saved notebook: what the legend says is then seen by the elements alone."""
    prompt = torch.tensor([[60, 62]])
    bare = re.sub(' (style|title)="[^"]*"', "", plots.html_text(Bytes(), prompt, generation(prompt, ROUNDS)))
    body, legend = bare.split("<br><small>")
    for name, tag in (("accepted", "ins"), ("resampled", "strong"), ("bonus", "em")):
        assert f"<{tag}>{name}</{tag}> ({plots.SHAPE[name]})" in legend
        assert body.count(f"<{tag}>") == plots.origins(ROUNDS).count(name)


def test_nothing_after_eos_is_shown():
    r = a_round([97, 0, 99], 2, None, None)
    assert plots.origins([r]) == ["accepted", "accepted"]
    assert r.tokens == [97, 0]


def test_ansi_has_faces_as_well_as_colours_and_can_be_off():
    assert plots.ansi_text("x", "bonus", colour=False) == "x"
    code = {"underlined": "4", "bold": "1", "italic": "3"}
    for name in ("accepted", "resampled", "bonus"):  # what the legend calls it is what the terminal shows
        assert plots.ANSI[name].split(";")[:-1] == [code[plots.SHAPE[name]]]


def test_round_rows_hold_every_draft_token_and_its_position():
    assert plots.round_rows(Bytes(), ROUNDS) == [
        [(1, "a", "accepted"), (2, "b", "accepted"), (3, "c", "accepted"), (4, "d", "bonus")],
        [(1, "e", "accepted"), (2, "<", "rejected"), (2, "&", "resampled"), (3, "g", "unverified")],
        [(1, "$", "plain")],
    ]
    ended = a_round([97, 0, 99], 2, None, None)  # by an accepted end-of-text token
    verdicts = [(position, verdict) for position, _, verdict in plots.round_rows(Bytes(), [ended])[0]]
    assert verdicts == [(1, "accepted"), (2, "accepted"), (3, "unverified")]


def test_the_ending_of_a_round_is_drawn_at_the_position_where_it_ended(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots.rounds, "plot_overlap", lambda *given: drawn.append(given))
    p, q = torch.rand(2, 3, 256), torch.rand(2, 2, 256)
    for probabilities in (p, q):
        probabilities /= probabilities.sum(-1, keepdim=True)
    for accepted, origin, position in ((0, "resampled", 0), (1, "resampled", 1), (2, "bonus", 1)):
        r = a_round([97, 98], accepted, 99, origin)
        r.p, r.q = p[0], q[0]
        plots.plot_ending(Bytes(), r, "ending", most=256)
        shown, other, labels, _ = drawn.pop()
        assert sorted(shown) == sorted(p[0, position].tolist()) and sorted(other) == sorted(q[0, position].tolist())
        assert len(labels) == 256
    sure = torch.eye(256)[:3]  # tokens of probability 0 are not drawn, unlikely ones are
    r.p, r.q = sure, sure[:2]
    plots.plot_ending(Bytes(), r, "ending")
    assert drawn.pop()[:2] == ([1.0], [1.0])
    r.p, r.q = torch.full((3, 256), 1 / 256), torch.full((2, 256), 1 / 256)
    plots.plot_ending(Bytes(), r, "ending")
    assert len(drawn.pop()[0]) == 8
    with pytest.raises(ValueError, match="trace=True"):
        plots.plot_ending(Bytes(), a_round([97], 1, 99, "bonus"), "ending")


def test_figures_draw_the_data_and_stay_closed_afterwards(monkeypatch):
    import matplotlib.pyplot as plt

    seen = []
    monkeypatch.setattr(plt, "show", lambda: (seen.append(plt.gcf()), plt.close("all")))
    plots.plot_rounds(Bytes(), ROUNDS, "rounds")
    axis = seen[-1].axes[0]
    labels = {t.get_text(): t.get_position() for t in axis.texts}
    assert list(labels)[:5] == ["a  A", "b  A", "c  A", "d  B", "4 tokens"] and {"g", "$  P", "1 token"} <= set(labels)
    (x, upper), (same, lower) = labels["<  R"], labels["&  S"]  # one cell: the resampled token below the rejected one
    assert x == same == 1.5 and round(upper) == round(lower) == 1 and upper < lower
    assert [t.get_text() for t in axis.get_xticklabels()] == ["1", "2", "3", "4"]  # gamma + 1
    assert len(axis.patches) == 4 + 4 + 1 and len({b.get_linestyle() for b in axis.patches}) == 2
    (legend,) = seen[-1].legends
    assert len(legend.get_texts()) == len({v for row in plots.round_rows(Bytes(), ROUNDS) for _, _, v in row})
    plots.plot_distributions({"p": [0.5, 0.5], "q": [0.1, 0.9]}, [" a", "b"], "distributions")
    assert sorted(round(b.get_height(), 3) for b in seen[-1].axes[0].patches) == [0.1, 0.5, 0.5, 0.9]
    plots.plot_lines([1, 2], {"one": [1, 2], "two": [3, 4]}, "t", "x", "y")
    assert [list(line.get_ydata()) for line in seen[-1].axes[0].lines] == [[1, 2], [3, 4]]
    assert len({line.get_marker() for line in seen[-1].axes[0].lines}) == 2
    assert plt.get_fignums() == []


def test_the_palette_differs_in_lightness_or_letter():
    assert len(set(plots.PALETTE.values())) == len(plots.PALETTE)
    assert len(set(plots.LETTERS.values())) == len(plots.LETTERS)


# --- the figures of the course ----------------------------------------------------------------------------------


P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


def test_overlap_parts_add_up_to_both_distributions():
    parts = plots.overlap_parts(P, Q)
    assert sum(parts["accepted"]) == pytest.approx(0.7)
    for x in range(3):
        assert parts["accepted"][x] + parts["resampled"][x] == pytest.approx(P[x])
        assert parts["accepted"][x] + parts["rejected"][x] == pytest.approx(Q[x])
        assert parts["resampled"][x] == 0 or parts["rejected"][x] == 0


def test_the_overlap_figure_stacks_its_parts(shown):
    plots.plot_overlap(P, Q, [" a", "b", "c"], "overlap")
    bars = shown[0].axes[0].patches
    assert heights(shown[0].axes[0]) == [0.2, 0.3, 0.2, 0.3, 0, 0, 0, 0.2, 0.1]
    assert [round(b.get_y(), 6) for b in bars] == [0, 0, 0, 0.2, 0.3, 0.2, 0.5, 0.3, 0.2]
    assert len({b.get_hatch() for b in bars}) == 3  # told apart without colour
    p_lines, q_lines = shown[0].axes[0].collections
    for lines, values in ((p_lines, P), (q_lines, Q)):
        assert [segment[0][1] for segment in lines.get_segments()] == pytest.approx(values)
    assert p_lines.get_linestyle() != q_lines.get_linestyle()


def test_acceptance_positions_count_only_what_was_tested():
    # 3 of 3; 1 of 3, the second rejected; nothing drafted; an accepted token ended the text
    rounds = [*ROUNDS, a_round([97, 0, 99], 2, None, None)]
    assert plots.acceptance_positions(rounds) == [(3, 3), (3, 2), (1, 1)]
    assert plots.acceptance_positions([]) == []


def test_the_acceptance_figure_draws_both_counts_and_says_the_share(shown):
    plots.plot_acceptance(ROUNDS, "acceptance")
    (axis,) = shown[0].axes
    assert heights(axis) == [2, 2, 1, 2, 1, 1]
    assert [t.get_text() for t in axis.texts] == ["100%", "50%", "100%"]


def test_the_noise_band_is_two_standard_errors_and_stays_a_probability():
    (low, high), never, _ = plots.noise_band([0.5, 0.0, 0.999], 100)
    assert (low, high) == (pytest.approx(0.4), pytest.approx(0.6))
    assert never == (0.0, 0.0)
    assert plots.noise_band([0.999], 10)[0][1] == 1.0


def test_the_empirical_figure_draws_frequencies_target_and_band(shown):
    plots.plot_empirical({"right": P, "wrong": Q}, P, 400, ["a", "b", "c"], "empirical")
    axis = shown[0].axes[0]
    assert heights(axis) == P + Q
    assert len(axis.collections) == 6  # a band and a line a token
    assert len({b.get_hatch() for b in axis.patches}) == 2


def test_statistic_bins_hold_every_value_once_and_share_their_edges():
    edges, shares = plots.statistic_bins({"right": [0.0, 1.0, 1.5, 2.0], "wrong": [2.0] * 97 + [50.0]}, bins=4)
    assert len(edges) == 5 and edges[0] == 0
    assert all(sum(x) == pytest.approx(1) for x in shares.values())
    end = edges[-1]
    assert shares["right"][int(1.0 / end * 4)] > 0 and shares["wrong"][-1] > 0
    assert plots.statistic_bins({"flat": [0.0, 0.0]})[1]["flat"][0] == 1


def test_the_statistics_figure_draws_both_histograms_and_the_threshold(shown):
    values = {"right": [0.5, 1.0, 3.0, 1.0], "wrong": [3.0, 4.0, 2.5, 0.5]}
    plots.plot_statistics(values, 2.0, "test")
    axis = shown[0].axes[0]
    _, shares = plots.statistic_bins(values)
    assert heights(axis) == [round(x, 6) for x in shares["right"] + shares["wrong"]]
    assert any(set(line.get_xdata()) == {2.0} for line in axis.lines)
    assert [t.get_text()[:12] for t in axis.get_legend().get_texts()] == ["right: 25.0%", "wrong: 75.0%"]
    assert len({b.get_hatch() for b in axis.patches}) == 2


def test_the_power_figure_writes_each_number_and_marks_blind_spots(shown):
    plots.plot_power({"one": [None, 1.0], "two": [0.004, 0.999]}, ["text 1", "text 2"], "power")
    axis = shown[0].axes[0]
    assert [t.get_text() for t in axis.texts] == ["blind", "1.00", "0.004", "1.00"]
    assert axis.images[0].get_array().tolist() == [[0, 1.0], [0.004, 0.999]]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["one", "two"]


def test_the_scores_figure_counts_each_text_and_marks_the_mean(shown):
    scores = {"right": [1.05, 1.1, 1.3], "wrong": [0.9, 1.5]}
    plots.plot_scores(scores, 0.2, "scores", "nats")
    for axis, x in zip(shown[0].axes, scores.values(), strict=True):
        assert sum(b.get_height() for b in axis.patches) == len(x)
        assert axis.lines[0].get_xdata()[0] == pytest.approx(sum(x) / len(x))
    assert {axis.get_xlim() for axis in shown[0].axes} == {shown[0].axes[0].get_xlim()}


def test_the_ranks_are_summed_into_bars_beside_what_is_expected(shown):
    found = {"G": ([4.0, 2.0, 1.0, 1.0], [5.0, 2.0, 0.5, 0.5]), "H": ([0.0, 0.0, 0.0, 8.0], [4.0, 3.0, 0.5, 0.5])}
    plots.plot_ranks(found, "ranks", bins=2)
    for axis, (name, bars, steps) in zip(shown[0].axes, [("G", [6, 2], [7, 1]), ("H", [0, 8], [7, 1])], strict=True):
        assert axis.get_title(loc="left") == name and axis.get_yscale() == "log"
        written = [patch for patch in axis.patches if hasattr(patch, "get_height")]
        assert [b.get_height() for b in written] == bars
        (expected,) = [patch for patch in axis.patches if hasattr(patch, "get_data")]
        assert expected.get_data().values.tolist() == steps and expected.get_data().edges.tolist() == [1, 3, 5]


def test_the_power_curves_are_drawn_against_both_axes(shown):
    points = [(25, 2.0, 0.1), (100, 8.0, 0.5), (400, 32.0, 1.0)]
    plots.plot_power_curves({"the fault": points}, "power")
    left, right = shown[0].axes
    assert left.lines[0].get_xdata().tolist() == [25, 100, 400]
    assert right.lines[0].get_xdata().tolist() == [2, 8, 32]
    assert left.lines[0].get_ydata().tolist() == right.lines[0].get_ydata().tolist() == [0.1, 0.5, 1.0]


def traced(gamma=3):
    table = sl.TableModel(torch.tensor([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]], dtype=torch.float64))
    draft = sl.TableModel(torch.tensor([[0.3, 0.4, 0.3], [0.1, 0.5, 0.4], [0.25, 0.5, 0.25]], dtype=torch.float64))
    ids = torch.tensor([[0, 1]])
    return ids, sl.speculative(table, draft, ids, 17, gamma=gamma, generator=3, trace=True)


def test_tapes_are_the_caches_real_lengths(shown):
    _, g = traced()
    rows = plots.tape_rows(g.rounds)
    for row, r in zip(rows, g.rounds, strict=True):
        assert row["target"] == tuple(r.target_cache)
        before, filled, after = row["target"]
        assert filled - before == len(r.drafted) + 1 and filled - after == len(r.drafted) - r.accepted
    plots.plot_tapes(g.rounds, "tapes")
    drawn = [b.get_width() for b in shown[0].axes[0].patches]
    lines = [lengths for row in rows for lengths in row.values()]
    assert drawn[1::3] == [after - before for before, _, after in lines]
    assert drawn[2::3] == [filled - after for _, filled, after in lines]


# --- the benchmark ----------------------------------------------------------------------------------------------


def variant(seconds, passes=60, accepted=0, rejected=0):
    return benchmark.Variant(4, seconds, passes, accepted, rejected)


def a_measurement(fast, value=None):
    variants = {
        "target alone": variant([4.0, 4.0]),
        "draft alone": variant([0.5, 0.5]),
        "speculative, google": variant(fast, 24, 36, 18),
        "transformers, assisted": benchmark.Variant(4, note="not measurable here"),
    }
    return benchmark.Measurement("x", benchmark.Setting(gamma=4, new=30), 2, {1: [1.0], 5: [1.2]}, variants, value)


def test_the_figure_of_the_arms_draws_rates_spread_and_prediction(shown, tmp_path):
    rows = sl.benchmark.rows(a_measurement([2.0, 2.0]))
    plots.plot_variants(rows, "variants")
    axis = shown[0].axes[0]
    assert [round(b.get_width(), 3) for b in axis.patches] == [7.5, 22.5, 15.0]  # the draft's is cut off
    words = [t.get_text() for t in axis.texts]
    assert "60 tokens/s (bar cut off)" in words[1] and "2.00 x" in words[2] and "not measurable" in words[3]
    assert {t.xy[0] for t in axis.texts} == {axis.get_xlim()[1]}  # a column of its own, which no bar reaches
    drawn = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "D" and len(line.get_xdata())]
    assert drawn == [pytest.approx(7.5 * rows[2].predicted)]
    assert len({(b.get_facecolor(), b.get_hatch()) for b in axis.patches}) == 3
    plots.plot_variants(rows, "variants", save=tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG") and len(shown) == 1


def test_sweep_points_are_the_rows_of_one_arm():
    points = plots.sweep_points([a_measurement([2.0, 2.0], 1), a_measurement([], 2), a_measurement([8.0, 2.0], 8)])
    assert [(p["value"], p["speedup"]) for p in points] == [(1, 2.0), (8, 0.8)]
    # remainders of -.48 and .48, over sqrt 2, and Student's t for two texts
    assert points[0]["half"] == 0 and points[1]["half"] == pytest.approx(0.48 * 12.706)


def test_the_figures_show_other_drafters_and_rules(shown):
    """In a sweep a line for each, over its own plain loop; side by side a look of its own for each bar."""
    m, more = a_measurement([2.0, 2.0], 4), tuple(benchmark.MORE)
    extra = {benchmark.OWN_TARGET: variant([3.0, 3.0])} | {name: variant([1.5, 1.5], 20, 40, 10) for name in more}
    m = replace(m, variants=m.variants | extra)
    plots.plot_sweep({"here": [m]}, "sweep", "gamma")
    lines = {c.get_label(): list(c.lines[0].get_ydata()) for c in shown[0].axes[0].containers}
    assert lines == {"here": [2.0], **dict.fromkeys(more, [2.0])}
    plots.plot_sweep({"here": [m], "there": [m]}, "sweep", "gamma")
    labels = [c.get_label() for c in shown[1].axes[0].containers]
    assert labels == ["here", "there", *(f"{where}, {name}" for name in more for where in ("here", "there"))]
    plots.plot_variants(benchmark.rows(m), "variants")
    bars = shown[2].axes[0].patches
    assert len({(b.get_facecolor(), b.get_hatch()) for b in bars}) == len(bars) == 4 + len(more)
    without = benchmark.Row(more[0], note="not for this pair: a sentence that is long")
    plots.plot_variants([*benchmark.rows(m), without], "variants")
    assert shown[3].axes[0].texts[-1].get_text() == "not for this pair"  # a sentence would leave no room for the bars


def test_the_figure_of_a_sweep_shows_every_machine_and_none(shown):
    slow, fast = [a_measurement([8.0, 2.0], x) for x in (1, 8)], [a_measurement([2.0, 2.0], x) for x in (8, 16)]
    plots.plot_sweep({"slow": slow, "fast": fast, "empty": []}, "sweep", "gamma")
    axis = shown[0].axes[0]
    assert [t.get_text() for t in axis.get_xticklabels()] == ["1", "8", "16"]
    lines = {c.get_label(): list(c.lines[0].get_xdata()) for c in axis.containers}
    assert lines == {"slow": [0, 1], "fast": [1, 2]}
    assert len({c.lines[0].get_linestyle() for c in axis.containers}) == 2
    assert axis.get_ylim()[1] > max(p["predicted"] for p in plots.sweep_points(fast))
    plots.plot_sweep({}, "sweep", "gamma")
    assert any("no recording" in t.get_text() for t in shown[1].axes[0].texts)
    assert (shown[0].get_size_inches() == shown[1].get_size_inches()).all()


def test_the_sweeps_are_rows_with_counts_left_and_seconds_right(shown):
    def sweep(values):
        return [a_measurement([2.0, 2.1], x) for x in values]

    recorded = {factor: {"one": sweep(x), "two": sweep(x)} for factor, x in (("gamma", (1, 8)), ("prompt", ("a", "b")))}
    by_temperature = [replace(m, setting=replace(m.setting, temperature=m.value)) for m in sweep((0.0, 1.0))]
    recorded |= {"temperature": {"one": by_temperature, "two": []}, "draft": {"one": []}}
    plots.plot_sweeps(recorded, "sweeps")
    axes = shown[0].axes
    assert len(axes) == 3 * 2 and "count" in axes[0].get_title() and "seconds" in axes[1].get_title()
    for axis, x, joined in ((axes[0], [0, 3], True), (axes[2], [0, 1], False), (axes[4], [0, 1], True)):
        lines = [line for line in axis.lines if line.get_label() in ("one", "two")]
        assert [list(line.get_xdata()) for line in lines][0] == x and (lines[0].get_linestyle() != "None") is joined
        assert list(lines[0].get_ydata()) == [60 / 24] * 2
    (bars,) = axes[5].containers
    half = plots.sweep_points(sweep([1.0]))[0]["half"]
    assert bars.lines[2][0].get_segments()[0][1][1] == pytest.approx(8 / 4.1 + half)
    hollow = [line.get_markerfacecolor() for line in axes[5].lines if line.get_marker() == "o"]
    assert hollow[0] == "white" != hollow[1]  # at temperature 0 texts repeat
    assert axes[1].get_ylim() == axes[5].get_ylim()
    plots.plot_sweeps({"gamma": {"one": []}}, "none")
    assert any("no recording" in t.get_text() for t in shown[1].axes[0].texts)


def test_batch_sizes_are_drawn_with_a_line_a_gamma(shown, tmp_path):
    """Throughput on the left, speed-up with its interval on the right, predictions beside it, and break-even."""

    def times(seconds, counts):
        return benchmark.BatchTimes(seconds, [benchmark.Counts(*counts)] * 2, [30] * 2, [0, 1])

    points = []
    for size, slow in ((1, 1.0), (4, 1.5), (16, 4.0)):
        each = {0: times([2.0, 4.0], (60, 0, 0, 50, 50, 0, 0)), 2: times([slow, slow], (20, 40, 9, 15, 45, 30, 9))}
        each |= {4: times([slow, 2 * slow], (15, 45, 9, 12, 48, 36, 9))}
        points.append(benchmark.BatchPoint(size, each, {1: [2.0], 3: [3.0], 5: [4.0]}, [0.5]))
    about = ("AMD", "cpu", "2.13", "5.24", "2026-01-01", "tiny", "own", 30, sl.Sampling(), None, 2)
    sweep = benchmark.BatchSweep(*about, "process CPU seconds", [], points)
    plots.plot_batches(sweep, "message")
    left, right = shown[0].axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in left.lines}
    assert drawn["plain decoding"] == ([1, 4, 16], [10.0, 40.0, 160.0])
    assert drawn["fastest of all"] == ([1, 4, 16], [30.0, 80.0, 160.0])  # at 16 nothing is faster than plain decoding
    assert "tokens per second (CPU time)" in left.get_ylabel() and left.get_xscale() == left.get_yscale() == "log"
    rows = [r for r in benchmark.batch_rows(sweep) if r.gamma]
    for container, gamma in zip(right.containers, (2, 4), strict=True):
        mine = [r for r in rows if r.gamma == gamma]
        assert container.get_label() == f"gamma {gamma}"
        assert list(container.lines[0].get_ydata()) == [r.speedup for r in mine]
        ends = [tuple(segment[:, 1]) for segment in container.lines[2][0].get_segments()]
        assert ends == [pytest.approx((r.speedup - r.margin, r.speedup + r.margin)) for r in mine]
    diamonds = [list(line.get_ydata()) for line in right.lines if line.get_marker() == "D" and len(line.get_ydata())]
    assert diamonds == [[r.predicted for r in rows if r.gamma == g] for g in (2, 4)]
    assert any(list(line.get_ydata()) == [1, 1] for line in right.lines)  # where it stops paying
    assert [t.get_text() for t in right.get_xticklabels()] == ["1", "4", "16"]
    assert len({c.lines[0].get_color() for c in right.containers}) == 2
    assert len({c.lines[0].get_marker() for c in right.containers}) == 2
    assert right.get_xlabel() == left.get_xlabel() and "batch size" in left.get_xlabel()
    assert "message" in shown[0].get_suptitle() and "95 %" in right.get_title()
    plots.plot_batches(replace(sweep, timed="seconds of the wall clock"), "m", save=tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG") and len(shown) == 1


def test_ordered_values_stand_at_their_size_and_names_side_by_side():
    assert plots.sweep_positions("gamma", [1, 8, 2, 8]) == {"1": 0, "2": 1, "8": 3}
    assert plots.sweep_positions("temperature", [0.0, 1.5]) == {"0.0": 0, "1.5": 1.5}
    assert plots.sweep_positions("prompt", ["z", "a", "z"]) == {"z": 0, "a": 1}


# --- the picture that moves -------------------------------------------------------------------------------------


def test_animation_frames_show_proposals_verdicts_and_the_targets_own_token():
    frames = plots.animation_frames(Bytes(), ROUNDS)
    assert frames[0]["said"].startswith("7 tokens in 3 target passes") and frames[0]["text"] == frames[-1]["text"]
    assert {verdict for _, verdict in frames[0]["boxes"]} == {*plots.LETTERS, "unverified"} - {"plain"}  # the key
    frames = frames[1:]
    assert [f["boxes"] for f in frames] == [
        [("a", "draft"), ("b", "draft"), ("c", "draft")],
        [("a", "accepted"), ("b", "accepted"), ("c", "accepted")],
        [("a", "accepted"), ("b", "accepted"), ("c", "accepted"), ("d", "bonus")],
        [("e", "draft"), ("<", "draft"), ("g", "draft")],
        [("e", "accepted"), ("<", "rejected"), ("g", "unverified")],
        [("e", "accepted"), ("&", "resampled")],
        [("$", "plain")],
    ]
    assert ["".join(piece for piece, _ in f["text"]) for f in frames] == [
        "",
        "",
        "abcd",
        "abcd",
        "abcd",
        TEXT[:6],
        TEXT,
    ]
    assert frames[-1]["text"][0] == ("a", "accepted") and "1 accepted" in frames[4]["said"]
    assert "(4 tokens in 1 target pass)" in frames[2]["said"] and "(6 tokens in 2 target passes)" in frames[5]["said"]
    assert plots.animation_frames(Bytes(), [a_round([97, 0, 99], 2, None, None)])[-1]["said"].endswith("ended")


BILLS = {
    "0": {"prompt": 1.0, "target": 8.0, "draft": 0.0, "rest": 1.0, "rounds": 9},
    "4": {"prompt": 1.5, "target": 2.0, "draft": 1.0, "rest": 0.5, "rounds": 3},
}


def test_a_round_as_estimated_and_as_measured(shown):
    breakdown = {int(gamma): parts for gamma, parts in BILLS.items()}  # a plain step: (8 + 1) / 9 = 1 s
    v, c = {1: [2.0, 2.0, 9.0], 5: [2.4]}, [0.1, 0.2, 0.3]
    (gamma, (estimated, measured)), *others = plots.round_parts(v, c, breakdown).items()
    assert gamma == 4 and not others
    assert estimated == {"target": pytest.approx(1.2), "draft": pytest.approx(0.8), "rest": 0}
    assert measured == {"target": pytest.approx(2 / 3), "draft": pytest.approx(1 / 3), "rest": pytest.approx(0.5 / 3)}
    plots.plot_round_cost(v, c, breakdown, "a round")
    axis = shown[0].axes[0]
    assert [t.get_text() for t in axis.texts] == [" 2.00", " 1.17"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["gamma 4, estimated", "measured"]
    assert plots.round_parts(v, c, {}) == plots.round_parts(v, c, {4: breakdown[4]}) == {}
    plots.plot_round_cost(v, c, {}, "nothing recorded")


LONG = "A prompt that is so long that it does not fit in a line. " * 3


@pytest.mark.parametrize("kind", ["gif", "png"])
def test_the_animation_is_small_and_has_a_frame_each(tmp_path, kind):
    import matplotlib.pyplot as plt
    from PIL import Image

    file = tmp_path / f"rounds.{kind}"
    plots.animate_rounds(Bytes(), ROUNDS, LONG, save=file)
    with Image.open(file) as picture:
        assert picture.n_frames == len(plots.animation_frames(Bytes(), ROUNDS)) and picture.info["loop"] == 0
        assert picture.size[0] <= 800 and picture.format == kind.upper()
        for frame, duration in ((0, 2400), (2, 1200)):
            picture.seek(frame)
            assert picture.info["duration"] == duration
    assert file.stat().st_size < 100_000 and plt.get_fignums() == []
    with pytest.raises(ValueError, match="no round"):
        plots.animate_rounds(Bytes(), [], save=file)
    with pytest.raises(ValueError, match="ends in .gif or .png, got 'x.jpg'"):
        plots.animate_rounds(Bytes(), ROUNDS, save="x.jpg")


def test_a_notebook_shows_the_animation_as_one_animated_png_with_an_alternative_text(monkeypatch):
    import base64
    import io

    from PIL import Image

    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **options: shown.append((*a, options)))
    plots.animate_rounds(Bytes(), ROUNDS, LONG)
    ((data, options),) = shown
    with Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) as picture:
        assert picture.format == "PNG" and picture.n_frames == 8
    assert data["text/plain"] == options["metadata"]["image/png"]["alt"] == plots.animation_words(Bytes(), ROUNDS)
    assert data["text/plain"].splitlines()[1:] == [
        "round 1:  a A   b A   c A   d B",
        "round 2:  e A   < R   & S   g -",
        "round 3:  $ P",
    ]


def test_a_rectangle_shows_what_each_slot_holds_and_where_padding_goes(monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    seen = []
    real = plots.slots.figure

    @contextlib.contextmanager
    def kept(*given, **options):
        with real(*given, **options) as axis:
            yield axis
            seen.append([(round(bar.get_x() + 0.47), round(bar.get_y() + 0.4)) for bar in axis.patches])
            seen.append([text.get_text() for text in axis.texts])

    monkeypatch.setattr(plots.slots, "figure", kept)
    plots.plot_rectangle([2, 1], [1, 3], [2, 0], 6, "two")
    # Slot 0: two held, one stale beyond the new one, the new one, padding; slot 1: one held, three new.
    assert sorted(seen[0]) == sorted([(0, 0), (1, 0), (3, 0), (2, 0), (5, 0), (0, 1), (1, 1), (2, 1), (3, 1)])
    assert seen[1] == ["N", "2", "N", "N", "N"]


def test_a_slot_is_labelled_where_its_text_changes(monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    words = []
    real = plots.slots.figure

    @contextlib.contextmanager
    def kept(*given, **options):
        with real(*given, **options) as axis:
            yield axis
            words.extend(text.get_text() for text in axis.texts)

    monkeypatch.setattr(plots.slots, "figure", kept)
    plots.plot_slots([[(0, 2), (1, 1)], [(0, 3), (2, 4)], [(2, 1)]], 2, "slots")
    assert words == ["2", "text 0", "1", "text 1", "3", "4", "text 2", "1", "text 2"]
