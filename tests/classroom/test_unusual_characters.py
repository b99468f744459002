"""Whatever a model writes can be shown: in a figure, on a terminal, in a notebook.

A font has no glyph for many characters, and control characters clear a terminal or vanish in HTML.  They are written
out instead.
"""

import html
import io
import os
import re
import subprocess
import sys
import unicodedata
import warnings

import matplotlib
import pytest
import torch

import spec_lib as sl
from spec_lib import __main__ as command
from spec_lib import benchmark, plots, widgets
from spec_lib.plots import animation, glyphs, style
from spec_lib.plots.html import code
from spec_lib.records import CacheLengths
from tests.helpers.paths import ROOT

matplotlib.use("Agg")

WORDS = {
    "Chinese": "\u6f22\u5b57",
    "Hindi": "\u0928\u092e\u0938\u094d\u0924\u0947",
    "Korean": "\ud55c\uad6d\uc5b4",
    "emoji": "\U0001f409",
    "joined emoji": "\U0001f469\u200d\U0001f4bb",
    "combining": "e\u0301\u0489\u20dd\u093f",
    "escape": "\x1b[2J",
    "bell": "\x07",
    "return": "a\rb",
    "backspace": "a\x08b",
    "tab": "\t",
    "C1": "\x9b",
    "override": "\u202eabc",
    "blank": "\u00a0",
    "formula": "$x_$",
    "private": "\ue000\U0010ffff",
}
BYTES = [bytes([i]).decode("utf-8", "replace") for i in range(256)]  # what GPT-2's 256 byte tokens decode to
SEVERAL = ["\n".join(list(WORDS.values())[i : i + 4]) for i in range(0, len(WORDS), 4)]
TOKENS = [*WORDS.values(), *dict.fromkeys(BYTES), *SEVERAL]
ACTING = [chr(i) for i in (*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]


class Strings:
    """A pair whose tokens are the strings above."""

    def decode(self, tokens) -> str:
        ids = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else tokens
        return "".join(TOKENS[i] for i in ids)


def some_rounds(tokens, gamma=3) -> list:
    """Rounds that draft each of these tokens, and accept, reject, resample and add many."""
    drafted = [torch.tensor(tokens[i : i + gamma]) for i in range(0, len(tokens), gamma)]
    rounds = [sl.Round(some, len(some) // 2, tokens[-1 - i], "resampled") for i, some in enumerate(drafted)]
    return [*rounds, sl.Round(torch.tensor(tokens[:1]), 1, tokens[-1], "bonus")]


@pytest.fixture
def drawn(monkeypatch, caplog):
    """The figures that were drawn; at the end, none of them has warned of anything, and no log line was written."""
    import matplotlib.pyplot as plt

    figures = []

    def show():
        figures.append(plt.gcf())
        plt.gcf().savefig(io.BytesIO())

    monkeypatch.setattr(plt, "show", show)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield figures
        assert [str(w.message) for w in found] == []
    assert caplog.records == [] and plt.get_fignums() == []


# --- figures ----------------------------------------------------------------------------------------------------


def caches():
    lengths = CacheLengths(3, 6, 5)
    return [sl.Round(torch.tensor([0, 1]), 1, 2, "resampled", target_cache=lengths, draft_cache=lengths)]


def an_ending(token):
    p, q = torch.zeros(2, len(TOKENS)), torch.zeros(1, len(TOKENS))
    p[:, token], q[0, token] = 1.0, 1.0
    return sl.Round(torch.tensor([token]), 1, token, "bonus", p=p, q=q)


def a_sweep(word):
    variants = {name: benchmark.Variant(4, [s, s], 60) for name, s in (("target alone", 4.0), ("draft alone", 1.0))}
    variants["speculative, google"] = benchmark.Variant(4, [2.0, 2.0], 60, 6, 3)
    variants["transformers"] = benchmark.Variant(4, note=word)
    setting = benchmark.Setting(gamma=4, new=30)
    return [benchmark.Measurement("x", setting, 2, {1: [1.0], 5: [1.2]}, variants, word)]


def batches(word):
    counts = benchmark.Counts(60, 0, 0, 50, 50, 0, 0)
    each = {g: benchmark.BatchTimes([1.0, 2.0], [counts] * 2, [30] * 2, [0, 1]) for g in (0, 2)}
    points = [benchmark.BatchPoint(size, each, {1: [1.0], 3: [1.5]}, [0.1]) for size in (1, 2)]
    return benchmark.BatchSweep(*[word] * 6, "own", 30, sl.Sampling(), None, 2, word, [], points)


BREAKDOWN = {g: {"target": 8.0, "draft": g, "rest": 1.0, "rounds": 9} for g in (0, 4)}
FIGURES = {  # each figure of the course, with a word wherever it can hold one
    "plot_distributions": lambda w: plots.plot_distributions({w: [0.5, 0.5]}, [w, "a"], w),
    "plot_overlap": lambda w: plots.plot_overlap([0.5, 0.5], [0.2, 0.8], [w, "a"], w),
    "plot_ending": lambda w: plots.plot_ending(Strings(), an_ending(TOKENS.index(w)), w),
    "plot_empirical": lambda w: plots.plot_empirical({f"x{w}": [0.5, 0.5]}, [0.2, 0.8], 9, [w, "a"], w),
    "plot_statistics": lambda w: plots.plot_statistics({w: [0.5, 1.0]}, 0.7, w),
    "plot_scores": lambda w: plots.plot_scores({w: [0.5, 1.0], "b": [0.6]}, 0.2, w, w),
    "plot_power_curves": lambda w: plots.plot_power_curves({w: [(25, 2.0, 0.1), (50, 4.0, 0.5)]}, w),
    "plot_power": lambda w: plots.plot_power({w: [0.5] * 5, "b": [0.5] * 5}, [w, *"bcde"], w),
    "plot_ranks": lambda w: plots.plot_ranks({w: ([9.0] * 16, [2.0] * 16), "b": ([1.0] * 16, [2.0] * 16)}, w),
    "plot_gain": lambda w: plots.plot_gain([0.0, 0.2], [0.0, 0.2], [w, "a"], w),
    "plot_lines": lambda w: plots.plot_lines([1, 2], {w: [1, 2]}, w, w, w),
    "plot_marginal": lambda w: plots.plot_marginal(0.7, 0.1, w),
    "plot_pass_cost": lambda w: plots.plot_pass_cost({f"x{w}": {1: [1.0], 4: [2.0]}}, w),
    "plot_cost_parts": lambda w: plots.plot_cost_parts([1], {w: [1.0]}, [2.0], w),
    "plot_prefixes": lambda w: plots.plot_prefixes([w, "a"], [w, "b"], w),
    "plot_kv_cache": lambda w: plots.plot_kv_cache([w, "a"], 2, w),
    "plot_region": lambda w: plots.plot_region(w, points={w: (0.5, 0.1)}, max_gamma=2),
    "plot_reported": lambda w: plots.plot_reported([benchmark.Reported(w, 4, 0.5, 0.1, 1.0, 1.0)], w),
    "plot_roofline": lambda w: plots.plot_roofline({w: (1e12, 1e14)}, {w: 5.0}, w),
    "plot_measured_roofline": lambda w: plots.plot_measured_roofline({w: 1e10}, 1e11, {w: {0.5: 1e9}}, w),
    "plot_time_parts": lambda w: plots.plot_time_parts({w: {w: 1.0, "b": 2.0}}, w),
    "plot_variants": lambda w: plots.plot_variants(benchmark.rows(a_sweep(w)[0]), w),
    "plot_sweep": lambda w: plots.plot_sweep({w: a_sweep(w)}, w, w),
    "plot_sweeps": lambda w: plots.plot_sweeps({"prompt": {w: a_sweep(w), "b": a_sweep(w)}}, w),
    "plot_batches": lambda w: plots.plot_batches(batches(w), w),
    "plot_rectangle": lambda w: plots.plot_rectangle([3, 1], [1, 2], [2, 0], 8, w),
    "plot_slots": lambda w: plots.plot_slots([[(0, 2), (1, 1)], [(9, 3)]], 2, w),
    "plot_round_cost": lambda w: plots.plot_round_cost({1: [1.0], 5: [1.2]}, [0.1], BREAKDOWN, w),
    "plot_rounds": lambda w: plots.plot_rounds(Strings(), some_rounds([TOKENS.index(w)]), w),
    "plot_acceptance": lambda w: plots.plot_acceptance(some_rounds([0, 1, 2]), w),
    "plot_tapes": lambda w: plots.plot_tapes(caches(), w),
}


def test_no_figure_is_left_out():
    public = {name for name in plots.__all__ if name.startswith("plot_")}
    assert public == set(FIGURES) and set(plots.__all__) <= set(dir(plots))


@pytest.mark.parametrize("name", FIGURES)
def test_each_word_is_drawn_without_a_warning(drawn, name):
    for word in SEVERAL:
        FIGURES[name](word)
    assert len(drawn) == len(SEVERAL)
    for figure in drawn:
        all_can_be_drawn(figure.findobj(matplotlib.text.Text))


def all_can_be_drawn(texts):
    for text in texts:
        able = set().union(*glyphs.drawable(text.get_fontproperties()))
        assert {ord(c) for c in text.get_text()} <= able - set(map(ord, ACTING)) | {ord("\n")}


def test_each_word_and_byte_token_of_gpt2_is_drawn_without_a_warning(drawn):
    shares = [1 / len(TOKENS)] * len(TOKENS)
    plots.plot_rounds(Strings(), some_rounds(list(range(len(TOKENS)))), "tokens")
    plots.plot_distributions({"p": shares}, TOKENS, "tokens")
    plots.plot_empirical({"p": shares}, shares, 9, TOKENS, "tokens")
    plots.plot_overlap(shares, shares, TOKENS, "tokens")
    assert len(drawn) == 4
    for figure in drawn:
        all_can_be_drawn(figure.findobj(matplotlib.text.Text))
    for figure in drawn[1:]:
        assert {"\\x00", "\\x7f", "\ufffd"} <= {t.get_text() for t in figure.axes[0].get_xticklabels()}


def test_the_animation_draws_them_too(drawn, tmp_path, monkeypatch):
    import matplotlib.axes

    texts, real = [], matplotlib.axes.Axes.text
    monkeypatch.setattr(matplotlib.axes.Axes, "text", lambda *a, **k: texts.append(real(*a, **k)) or texts[-1])
    controls = [TOKENS.index(byte) for byte in dict.fromkeys(BYTES) if not byte.isprintable() or byte == "\ufffd"]
    rounds = [*some_rounds(list(range(len(WORDS)))), *some_rounds(controls, 9)]
    plots.animate_rounds(Strings(), rounds, "".join(TOKENS), save=tmp_path / "a.gif")
    all_can_be_drawn(texts)
    shown = "".join(text.get_text() for text in texts)
    assert all(code in shown for code in ("U+6F22", "U+D55C", "\\x1b[2J", "a\\rb", "a\\x08b", "\\x9b", "U+202E"))


def test_a_word_is_drawn_as_what_the_reader_can_name(drawn):
    plots.plot_distributions(
        {"p": [0.1] * 8}, [" \u6f22", "\x1b[2J", "a\n", "\r\t", "", "\u00e9", "$a$", "\u200d"], "words"
    )
    said = [label.get_text() for label in drawn[0].axes[0].get_xticklabels()]
    assert said == ["\u00b7U+6F22", "\\x1b[2J", "a\u21b5", "\\r\\t", "\u2205", "\u00e9", "$a$", "U+200D"]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_that_is_written_is_cut_by_the_edge(drawn, name, monkeypatch):
    monkeypatch.setitem(globals(), "TOKENS", ["a", "b", "c"])
    FIGURES[name]("a")
    figure = drawn[0]
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axis in figure.axes:
        legend = [] if axis.get_legend() is None else axis.get_legend().get_texts()
        texts += [axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts, *legend]
    for text in texts:
        box = text.get_window_extent()
        if text.get_text():
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text
            assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text


def test_titles_and_legends_keep_their_lines(drawn):
    plots.plot_lines([1], {"one\n\u6f22": [1]}, "a\nb\x07", "x", "y")
    axis = drawn[0].axes[0]
    assert axis.get_title() == "a\nb\\x07" and axis.get_legend().get_texts()[0].get_text() == "one\nU+6F22"


def test_the_fonts_own_map_decides():
    from matplotlib.font_manager import FontProperties

    arabic = "\u0627"
    families = {"DejaVu Sans": arabic, "STIXGeneral": "U+0627"}
    for family, said in families.items():
        assert glyphs.legible(arabic, FontProperties(family=family)) == said
        with matplotlib.rc_context({"font.family": family}):
            assert glyphs.legible(arabic) == glyphs.token_label(arabic) == said
    for several in (["STIXGeneral", "DejaVu Sans"], ["No Such Font", "DejaVu Sans"], ["No Such Font"]):
        assert glyphs.legible(arabic, FontProperties(family=several)) == arabic  # matplotlib goes on to the next


@pytest.mark.parametrize("family", [["STIXGeneral"], ["STIXGeneral", "DejaVu Sans"]])
def test_another_font_draws_without_a_warning_too(drawn, tmp_path, family):
    with matplotlib.rc_context({"font.family": family, "font.monospace": family}):
        for word in (*SEVERAL, "\u0627 a\n"):
            plots.plot_distributions({word: [0.5, 0.5]}, [word, "a"], word)
        plots.animate_rounds(Strings(), some_rounds([0, 5, 2]), "\u0627 a\n", save=tmp_path / "a.gif")


def test_a_long_label_is_cut_but_never_inside_a_code():
    word = "\u6f22" * 9
    assert glyphs.token_label(word) == "U+6F22" * 2 + "..."
    assert (
        glyphs.token_label("abcdefghij", 10) == "abcdefghij" and glyphs.token_label("abcdefghijk", 10) == "abcdefg..."
    )


def test_a_row_of_boxes_and_a_line_of_text_stay_inside_the_picture():
    for tokens in (["a"] * 5, ["\u6f22\u5b57"] * 5, ["understanding"] * 6, ["\u0928" * 9] * 9):
        labels = animation.box_labels(tokens)
        assert sum(animation._box_width(label) + 0.8 for label in labels) <= animation.WIDTH - 2
    assert animation.box_labels([" understanding", "a"]) == ["\u00b7understanding", "a"]
    rows = animation.text_rows([("\u6f22" * 40 + " a", "plain"), (" b\n", "bonus")])
    assert "".join(part for row in rows for _, part, _ in row) == "U+6F22" * 40 + " a b\u21b5"
    assert all(column + len(part) <= animation.WIDTH for row in rows for column, part, _ in row) and len(rows) > 3


# --- the helper of all figures ----------------------------------------------------------------------------------


def test_a_figure_that_fails_is_closed_and_the_style_does_not_leak(drawn):
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError), style.figure(3, 3) as axis:
        axis.plot([1], [1 / 0])
    assert plt.get_fignums() == [] and dict(matplotlib.rcParams) == before and drawn == []


def test_the_helper_writes_shows_and_closes(drawn, tmp_path):
    with style.figure(3, 2, title="above", save=tmp_path / "a.png") as axis:
        axis.plot([1], [1])
    with style.figure(3, 2, title="first", suptitle="all", nrows=2) as (a, b):
        pass
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG") and len(drawn) == 1
    assert (axis.get_title(), a.get_title(), b.get_title()) == ("above", "first", "")
    assert drawn[0].get_suptitle() == "all" and not a.spines["top"].get_visible()


def test_a_window_stays_open_where_matplotlib_is_interactive(monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    with plt.ion():
        plots.plot_lines([1], {"a": [1]}, "t", "x", "y")
        assert len(plt.get_fignums()) == 1
    plt.close("all")


def test_a_notebooks_backend_keeps_its_settings():
    """The first figure of a notebook loads its backend, which turns matplotlib interactive: the style must not undo it.

    If it did, figures that a reader makes without plt.show() would no longer appear.
    """
    pytest.importorskip("matplotlib_inline")
    code = "import IPython.core.interactiveshell as shell; shell.InteractiveShell.instance(); import matplotlib\n"
    code += "from spec_lib import plots; plots.plot_lines([1], {'a': [1]}, 't', 'x', 'y')\n"
    code += (
        "print(matplotlib.is_interactive(), matplotlib.rcParams['axes.spines.top'], matplotlib.pyplot.get_fignums())"
    )
    environment = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout.splitlines()[-1:] == ["True True []"], done.stderr


# --- text -------------------------------------------------------------------------------------------------------


def test_no_control_character_reaches_a_terminal():
    assert plots.ansi_text("\x1b[2J", "bonus", False) == "\\x1b[2J"
    assert plots.ansi_text("a\r\x08\n\tb", "plain", False) == "a\\r\\x08\n\tb"
    assert plots.ansi_text("\u202eabc\x9b", "bonus") == "\x1b[3;36mU+202Eabc\\x9b\x1b[0m"
    for character in ACTING:
        if character in "\n\t":
            continue
        for shown in (plots.ansi_text(character, "plain", False), plots.visible(character)):
            assert len(shown) >= 2 and shown.isascii() and shown.isprintable()


def test_what_belongs_to_the_text_stays():
    for text in (
        "\U0001f469\u200d\U0001f4bb",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "e\u0301",
        "a\u00a0b\ttab\n",
    ):
        assert plots.without_controls(text) == plots.ansi_text(text, "plain", False) == text


def test_a_token_in_a_log_is_never_invisible():
    for i in (*range(0x3000), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0080)):
        if unicodedata.category(chr(i)) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            shown = plots.visible(chr(i))
            assert shown.isprintable() and shown.strip() and shown != chr(i)
    assert plots.visible(" a\n") == "\u00b7a\u21b5" and plots.visible("") == "\u2205"


class Letters(Strings):
    """Four tokens, all of them control characters."""

    def decode(self, tokens) -> str:
        ids = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else tokens
        return "".join(("\x1b[2J", "\x08<", "\r", "\u202e")[i % 4] for i in ids)


@pytest.fixture(scope="module")
def made():
    rows = torch.rand(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 2
    rows /= rows.sum(-1, keepdim=True)
    ids = torch.tensor([[1, 2, 3, 0]])
    models = (sl.TableModel(x) for x in rows)
    return ids, sl.speculative(*models, ids, 40, gamma=3, generator=1, trace=True)


def test_no_control_character_reaches_a_notebook(made):
    for page in (
        plots.html_text(Letters(), *made),
        *widgets.frames(Letters(), *made),
        widgets.bars([1], [1], ["\x07"]),
    ):
        assert not set(page) & set(ACTING)
    body = re.sub("<[^>]+>", "", plots.html_text(Letters(), *made, legend=False))
    assert body.startswith("\\x08&lt;\\rU+202E\\x1b[2J")
    assert "\\x1b[2J" in re.sub("<[^>]+>", "", widgets.frames(Letters(), *made)[0])


@pytest.mark.parametrize("colour", [False, True])
def test_the_command_prints_no_control_character_of_the_model(monkeypatch, capsys, colour):
    monkeypatch.setattr(sl.Pair, "decode", Letters.decode)
    monkeypatch.setenv("FORCE_COLOR", "1" if colour else "")
    words = ["generate", "a\x1b[2J\x07 b", "--target", "tiny", "-v", "--seed", "1", "--max-new-tokens", "30"]
    assert command.main(words) == 0
    out = capsys.readouterr().out
    own = re.sub(r"\x1b\[[\d;]+m", "", out) if colour else out  # the colours are the command's own
    assert not set(own) & (set(ACTING) - {"\n"})
    assert own.startswith("a\\x1b[2J\\x07 b") and "\\r" in own and "U+202E" in own
    rejections = re.findall(r"^round \d+, position \d+: rejected (\S+), wrote (\S+)$", own, re.M)
    assert rejections and {word for pair in rejections for word in pair} <= {"\\x1b[2J", "\\x08<", "\\r", "U+202E"}


@pytest.mark.reported
def test_dollar_signs_make_no_formula_in_a_notebook():
    """Between two dollar signs a notebook's HTML was typeset as a formula, also where they were entities, and a class
    that says no is not heard everywhere (CODAIT/text-extensions-for-pandas issue 31, pandas-dev/pandas issue 19824,
    jupyterlab/jupyterlab issue 17935).

    Right: each sign that may begin or end a formula has an element of its own, since no formula goes beyond one
    (MathJax: includeHtmlTags); what is read is unchanged.  Siblings: \\( and \\[; tokens in a widget's <code>.
    """
    said = "$31 a share, or $135 \\(a\\) and \\[b\\] $$c$$"

    class Whole:
        def decode(self, tokens) -> str:
            return said * len(torch.as_tensor(tokens).flatten())

    ids = torch.tensor([[0]])
    generation = sl.Generation(
        torch.tensor([0]), torch.tensor([[0, 0]]), [sl.Round(torch.tensor([0]), 1, None, None)], ""
    )
    page = plots.html_text(Whole(), ids, generation)
    texts = re.findall(r">([^<]*)<", page)
    assert "".join(html.unescape(text) for text in texts).startswith(2 * said)
    assert max(sum(map(text.count, "$\\")) for text in texts) == 1
    for text in texts:
        assert not re.search(r"[$\\]", text) or len(text) == 1
    assert code("$x$") == '<code style="overflow-wrap:anywhere;">$x$</code>'
