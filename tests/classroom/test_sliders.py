"""The widgets moved again and again, and where there is no ipywidgets."""

import itertools
import sys

import pytest
import torch

from spec_lib import widgets
from tests.helpers.loops import one_sentence
from tests.helpers.tokenizers import Letters

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


def everything(box) -> list:
    return [box, *[w for child in getattr(box, "children", ()) for w in everything(child)]]


@pytest.mark.reported
@pytest.mark.parametrize("name", ["step_through", "overlap_explorer", "speed_explorer"])
def test_a_slider_moved_again_and_again_shows_one_page(made, name, capfd):
    """Each move of a slider added a figure below the last, or left it open until a warning came.

    Right: after moves to both ends and back, 30 and more, one page, no figure open, nothing printed, no error in any
    corner.  Siblings: each of the widgets.
    """
    pytest.importorskip("ipywidgets")
    import ipywidgets as w
    import matplotlib.pyplot as plt

    open_before = plt.get_fignums()
    box = {
        "step_through": lambda: widgets.step_through(Letters(), *made),
        "overlap_explorer": lambda: widgets.overlap_explorer(P, Q),
        "speed_explorer": lambda: widgets.speed_explorer(0.7, 0.1, 0.1),
    }[name]()
    parts = everything(box)
    sliders = [x for x in parts if isinstance(x, w.IntSlider | w.FloatSlider)]
    pages = [x for x in parts if isinstance(x, w.HTML)]
    first = pages[0].value
    assert len(pages) == 1 and sliders and not [x for x in parts if isinstance(x, w.Output)]
    shown = set()
    corners = itertools.product((0, 1), repeat=min(len(sliders), 6))
    for corner in [*corners, *[(i % 2,) * len(sliders) for i in range(30)]]:
        for slider, end in zip(sliders, corner, strict=False):
            slider.value = slider.max if end else slider.min
            shown.add(pages[0].value)
            assert len(pages[0].value) < 2 * len(first) + 2000 and "nan" not in pages[0].value
    assert len(shown) > 1 and len(everything(box)) == len(parts)
    assert plt.get_fignums() == open_before
    assert capfd.readouterr() == ("", "")


@pytest.mark.reported
@pytest.mark.parametrize("name", ["step_through", "overlap_explorer", "speed_explorer"])
def test_without_ipywidgets_the_same_pages_are_shown(made, name, monkeypatch, capsys):
    """Widgets did not show where their package was missing or of another age, and the cell ended in a traceback.

    Right: one line that says what to do, and the same pages as plain HTML.  Siblings: each of the widgets; importing
    the library needs no ipywidgets at all.
    """
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # import raises ImportError
    still, pages = {
        "step_through": lambda: (widgets.step_through(Letters(), *made), widgets.frames(Letters(), *made)),
        "overlap_explorer": lambda: (
            widgets.overlap_explorer(P, Q),
            [widgets.explorer_page(*(torch.tensor(x, dtype=torch.float64) for x in (P, Q)))],
        ),
        "speed_explorer": lambda: (widgets.speed_explorer(0.7, 0.1, 0.1), [widgets.speed_page(0.7, 0.1, 0.1)]),
    }[name]()
    assert all(page in still._repr_html_() for page in pages)
    assert still._repr_html_().count("<details") == (len(pages) if name == "step_through" else 0)
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1 and "pip install ipywidgets" in out


def test_distributions_of_different_length_are_not_explored():
    with pytest.raises(ValueError) as error:
        widgets.overlap_explorer([0.5, 0.3, 0.2], [0.1, 0.9])
    one_sentence(error, "3", "2", "same tokens")
