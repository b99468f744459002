"""The step-through: every frame holds its round, and the controls move over them."""

import re

import pytest
import torch

import spec_lib as sl
from spec_lib import plots, widgets
from tests.helpers.tokenizers import Letters

pytest.importorskip("ipywidgets")


def bare(page: str) -> str:
    return re.sub("<[^>]+>", " ", page)


def buttons(box):
    """previous, next, play, slider, page"""
    controls, page = box.children
    return *controls.children, page


def test_every_frame_holds_the_numbers_of_its_round(made):
    ids, g = made
    pages = widgets.frames(Letters(), ids, g)
    assert len(pages) == len(g.rounds)
    for i, (page, r) in enumerate(zip(pages, g.rounds, strict=True)):
        text = bare(page)
        assert f"Round {i + 1} of {len(g.rounds)}" in text
        for t, x in enumerate(r.drafted.tolist()):
            assert f"{float(r.p[t, x]):.3f}" in text and f"{float(r.q[t, x]):.3f}" in text
            assert f"{float(r.overlap[t]):.3f}" in text
            assert (f"{float(r.uniforms[t]):.3f}" in text) or t > r.accepted
        # what each origin is called: verified tokens, and those after a rejection
        rejected = r.rejected is not None
        assert page.count(">accepted</td>") == r.accepted
        assert page.count(">rejected</td>") == rejected
        assert text.count("not verified") == len(r.drafted) - r.accepted - rejected
        assert ("striped part" in text) == rejected
        for lengths in (r.target_cache, r.draft_cache):
            dropped = lengths.filled - lengths.after
            gone = f"-{dropped} cut (dashed)" if dropped else "nothing cut"
            assert f"+{lengths.filled - lengths.before} fed, {gone}, {lengths.after} left" in text


def test_the_text_grows_by_the_rounds_tokens_and_is_escaped(made):
    ids, g = made
    pages, new = widgets.frames(Letters(), ids, g), 0
    for page, r in zip(pages, g.rounds, strict=True):
        new += len(r.tokens)
        body = page.rsplit("white-space:pre-wrap", 1)[1].split(">", 1)[1]
        text = re.sub("<[^>]+>", "", body).replace("&lt;", "<")
        assert text == Letters().decode(ids) + Letters().decode(g.tokens[:new])


def test_the_bars_add_up_to_both_distributions():
    page = widgets.bars([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], ["a", "b", "c"])
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    assert ["accepted 0.200 resampled 0.300" in rows[0], "accepted 0.300 rejected 0.200" in rows[1]] == [True, True]
    widths = [[float(w) for w in re.findall(r"width:([\d.]+)em", row)] for row in rows]
    assert widths[0][1] / widths[0][0] == pytest.approx(1.5, abs=1e-3)


def test_buttons_slider_and_play_move_and_stop_at_both_ends(made):
    ids, g = made
    box = widgets.step_through(Letters(), ids, g)
    back, forward, play, slider, page = buttons(box)
    pages = widgets.frames(Letters(), ids, g)
    assert page.value == pages[0]
    back.click()
    assert page.value == pages[0] and slider.value == 1
    forward.click()
    forward.click()
    assert page.value == pages[2] and play.value == 3
    slider.value = len(pages)
    forward.click()
    assert page.value == pages[-1]
    play.value = 2  # what the browser does while it plays
    assert page.value == pages[1] and slider.value == 2


def test_a_move_computes_nothing_every_frame_is_ready_before(made, monkeypatch):
    ids, g = made
    _, forward, _, _, page = buttons(widgets.step_through(Letters(), ids, g))
    expected = widgets.frames(Letters(), ids, g)[3]

    def late(*_):
        raise AssertionError("a frame was made during a move")

    for name in ("frames", "bars", "_verified", "_overlap", "_tapes", "_text_so_far"):
        monkeypatch.setattr(widgets, name, late)
    for _ in range(3):
        forward.click()
    assert page.value == expected


def test_three_runs_of_a_cell_leave_one_handler_each(made):
    ids, g = made
    for _ in range(3):
        _, forward, _, slider, page = buttons(widgets.step_through(Letters(), ids, g))
    forward.click()
    assert slider.value == 2  # one handler: one step
    assert page.value == widgets.frames(Letters(), ids, g)[1]


def test_one_round_can_be_shown_too():
    box = widgets.player(["only"], "round")
    _, forward, _, slider, page = buttons(box)
    forward.click()
    assert page.value == "only" and slider.disabled


def test_what_cannot_be_shown_is_refused_in_a_sentence(made):
    ids, g = made
    with pytest.raises(ValueError, match="no rounds"):
        widgets.step_through(Letters(), ids, sl.Generation(g.tokens, g.ids))
    rows = torch.full((4, 4), 0.25)
    blind = sl.speculative(sl.TableModel(rows), sl.TableModel(rows), ids, 5)
    with pytest.raises(ValueError, match="trace=True"):
        widgets.step_through(Letters(), ids, blind)


def test_the_explorer_shows_the_readers_own_distributions():
    box = widgets.overlap_explorer([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])
    rows, page = box.children
    assert "accepted 0.70" in page.value
    rows.children[0].children[0].value = 0.0  # p = [0, .6, .4]
    assert "accepted 0.80" in page.value
    for slider in rows.children[1].children:
        slider.value = 0.0
    assert page.value == "Give each distribution at least one weight above 0."


def test_a_saved_widget_says_in_a_sentence_where_it_lives(made):
    """What GitHub shows of it, instead of a list of its parts."""
    found = [widgets.step_through(Letters(), *made), widgets.overlap_explorer([0.5, 0.5], [0.9, 0.1])]
    found.append(widgets.speed_explorer(0.7, 0.1, 0.1))
    for widget in found:
        assert str(widget) == repr(widget) == widgets.WITHOUT_KERNEL and len(widgets.WITHOUT_KERNEL) < 110  # else cut
        assert widget.get_state()["_model_name"] == "VBoxModel"  # which every frontend knows


def test_only_what_both_ipywidgets_share_is_used():
    import inspect

    source = inspect.getsource(widgets)
    assert not re.search(r"interact|Output\(|clear_output|layout=|style=\{", source)
    assert plots.PALETTE["accepted"] in widgets.bars([1.0], [1.0], ["a"])
