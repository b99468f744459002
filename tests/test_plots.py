"""Coloured text and figures: the data behind them."""

import re

import matplotlib
import pytest
import torch

import spec_lib as sl
from spec_lib import plots

matplotlib.use("Agg")


class Bytes:
    """A pair whose tokens are bytes: every character beyond ASCII is split."""

    def decode(self, tokens) -> str:
        ids = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else tokens
        return bytes(ids).decode("utf-8", "replace")


def a_round(drafted, accepted, token, origin):
    return sl.Round(torch.tensor(drafted, dtype=torch.int64), accepted, token, origin)


ROUNDS = [
    a_round([97, 98, 99], 3, 100, "bonus"),
    a_round([101, 60, 103], 1, 38, "resampled"),
    a_round([], 0, 36, "plain"),
]
TEXT = "abcde&$"


def generation(rounds):
    tokens = torch.tensor([t for r in rounds for t in r.tokens])
    return sl.Generation(tokens, tokens[None], rounds)


@pytest.mark.parametrize("text", ["naïve ☕ and 🐉!", "漢字かな" * 30, "plain"])
def test_pieces_join_to_the_text_and_hold_half_characters(text):
    emitted = [(b, "accepted" if i % 2 else "bonus") for i, b in enumerate(text.encode())]
    found = list(plots.pieces(Bytes(), torch.tensor([[72, 105]]), emitted))
    assert "".join(piece for piece, _ in found) == text
    assert len(found) == len(text) and not any("\ufffd" in piece for piece, _ in found)


def test_a_text_that_ends_inside_a_character_is_still_shown():
    found = list(plots.pieces(Bytes(), torch.tensor([[72]]), [(b, "plain") for b in "a🐉".encode()[:-1]]))
    assert found[0] == ("a", "plain") and "\ufffd" in found[-1][0]


def test_origins_name_each_emitted_token():
    assert plots.origins(ROUNDS) == ["accepted"] * 3 + ["bonus", "accepted", "resampled", "plain"]


def test_html_shows_every_token_once_escaped_and_readable_without_colour():
    html = plots.html_text(Bytes(), torch.tensor([[60, 62]]), generation(ROUNDS))
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


def test_nothing_behind_eos_is_shown():
    r = a_round([97, 0, 99], 2, None, None)
    assert plots.origins([r]) == ["accepted", "accepted"]
    assert r.tokens == [97, 0]


def test_ansi_has_faces_as_well_as_colours_and_can_be_off():
    assert plots.ansi_text("x", "bonus", colour=False) == "x"
    faces = {name: plots.ANSI[name].rsplit(";", 1)[0] for name in ("resampled", "bonus")}
    assert len(set(faces.values())) == 2 and all("4" in face for face in faces.values())


def test_round_rows_hold_what_was_rejected():
    assert plots.round_rows(Bytes(), ROUNDS) == [
        [("a", "accepted"), ("b", "accepted"), ("c", "accepted"), ("d", "bonus")],
        [("e", "accepted"), ("<", "rejected"), ("&", "resampled")],
        [("$", "plain")],
    ]


def test_figures_draw_the_data_and_stay_closed_afterwards(monkeypatch):
    import matplotlib.pyplot as plt

    seen = []
    monkeypatch.setattr(plt, "show", lambda: (seen.append(plt.gcf()), plt.close("all")))
    plots.plot_rounds(Bytes(), ROUNDS, "rounds")
    labels = [t.get_text() for t in seen[-1].axes[0].texts]
    assert labels[:4] == ["a  A", "b  A", "c  A", "d  B"] and labels[-1] == r"\$  P" and "<  R" in labels
    plots.plot_laws({"p": [0.5, 0.5], "q": [0.1, 0.9]}, [" a", "b"], "laws")
    assert sorted(round(b.get_height(), 3) for b in seen[-1].axes[0].patches) == [0.1, 0.5, 0.5, 0.9]
    plots.plot_lines([1, 2], {"one": [1, 2], "two": [3, 4]}, "t", "x", "y")
    assert [list(line.get_ydata()) for line in seen[-1].axes[0].lines] == [[1, 2], [3, 4]]
    assert len({line.get_marker() for line in seen[-1].axes[0].lines}) == 2
    assert plt.get_fignums() == []


def test_the_palette_differs_in_lightness_or_letter():
    assert len(set(plots.PALETTE.values())) == len(plots.PALETTE)
    assert len(set(plots.LETTERS.values())) == len(plots.LETTERS)
