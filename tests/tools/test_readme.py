"""What the README and the library's page show works, and is, as it stands there."""

import re

import spec_lib as sl
from spec_lib import benchmark
from tests.helpers.paths import ROOT
from tests.helpers.served import serving


def python_blocks() -> list[str]:
    """The library's page: many texts at once, a client of the server, a drafter of one's own, and the tests of such."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "spec_lib" / "README.md").read_text("utf-8"), re.S)


def test_the_client_of_the_server_prints_a_text_and_its_acceptance_rate(capsys, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # a company's proxy is not for this machine
    _, code, *_ = python_blocks()
    with serving(sl.load_pair("tiny").fast()) as server:
        names: dict = {}
        assert code.count("http://127.0.0.1:8000") == 1
        exec(code.replace("http://127.0.0.1:8000", server.url), names)
    text, alpha = names["answer"].choices[0].text, names["a"] / (names["a"] + names["r"])
    assert 0.3 < alpha <= 1 and f"{text} alpha: {alpha}" in capsys.readouterr().out


def test_many_texts_are_those_alone_and_one_is_cancelled():
    code, *_ = python_blocks()
    names: dict = {}
    exec(code, names)
    pair = names["pair"]
    assert [len(g.tokens) for g in names["texts"]] == [40, 20, 60]
    want = sl.speculative(pair.target, pair.draft, names["prompts"][0], 8, generator=1).tokens.tolist()
    assert names["texts"][0].tokens.tolist()[:4] == want[:4]
    assert [r.stop_reason for r in names["requests"]] == ["cancelled", "length", "length"]


def test_the_drafter_of_ones_own_writes_its_text(capsys):
    *_, code, tests = python_blocks()
    names: dict = {}
    exec(code, names)
    assert len(names["g"].tokens) == 60 and sum(r.accepted for r in names["g"].rounds) > 0
    assert names["pair"].decode(names["g"].tokens) in capsys.readouterr().out
    exec(tests, names)
    difference, p_value, rollbacks, same = capsys.readouterr().out.splitlines()
    assert float(difference) < 1e-12 and 0.001 < float(p_value) < 0.999
    assert int(rollbacks.split()[0]) > 5 and same == "True"
    plug = benchmark.Plug(lambda pair: names["Repeat"](), rule=names["hesitant"])  # as the page says below
    variants = (benchmark.TARGET, "mine")
    found = benchmark.compare(names["pair"], benchmark.Setting(new=9), 1, variants, plugs={"mine": plug})
    assert [row.variant for row in benchmark.rows(found)] == list(variants)


def test_the_speed_that_the_readme_promises_is_the_recordings():
    page = " ".join((ROOT / "README.md").read_text("utf-8").split())
    (promised,) = re.findall(r"100 tokens are written (\d\.\d) times as fast", page)
    said = (
        r"writes gives (\S+) times with the target model alone and (\S+) times with speculation, which is (\S+) times"
    )
    (with_ours,) = re.findall(said, page)
    (recording,) = benchmark.recordings()
    measured = recording.comparison
    assert (measured.setting.new, measured.setting.gamma, measured.setting.temperature) == (100, 4, 1.0)
    assert recording.machine in page
    speedup = {row.variant: row.speedup for row in benchmark.rows(measured)}  # as notebook 09 prints it
    assert f"{speedup[benchmark.GOOGLE]:.1f}" == promised
    own = {row.variant: row for row in benchmark.rows(measured)}[benchmark.OWN].over_plain
    found = (speedup[benchmark.OWN_TARGET], speedup[benchmark.OWN], own)
    assert with_ours == tuple(f"{x:.1f}" for x in found)


def test_the_readmes_commands_say_where_they_are_run():
    """Typed in the shell of the two commands above them, they found no PyTorch."""
    page = (ROOT / "README.md").read_text("utf-8")
    assert -1 < page.index("source .venv/bin/activate") < page.index("python -m spec_lib")


def test_the_notebooks_that_show_a_recording_from_elsewhere_are_those_that_the_page_names():
    page = " ".join((ROOT / "spec_lib" / "README.md").read_text("utf-8").split())
    said = re.search(r"dropped into `notebooks/recordings`: (\d\d) shows .*? others, and (\d\d), which needs", page)
    shown = {}
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        for whole in re.findall(r"for r in benchmark\.recordings\(([^()]*)\)(?! if)", file.read_text("utf-8")):
            shown[file.name[:2]] = whole
    assert shown == {said[1]: "", said[2]: "whole=True"}


def test_the_cards_word_on_the_recording_and_on_notebook_13():
    card = (ROOT / "spec_lib" / "tiny" / "MODEL_CARD.md").read_text("utf-8")
    rows = {row.variant: row for row in benchmark.rows(benchmark.recordings()[0].comparison)}
    said = re.search(r"has (\d\.\d\d) and (\d\.\d\d) at gamma 4", card)
    assert said.groups() == (f"{rows[benchmark.GOOGLE].speedup:.2f}", f"{rows[benchmark.OWN].over_plain:.2f}")
    (at_1,) = re.findall(r"(?m)^\| 1 \|(?:[^|]*\|){3} (\d\.\d\d) \|", card)
    assert f"at gamma 1 is open: {at_1} here, and above 1 in notebook 13" in card
    book = (ROOT / "notebooks" / "13_at_the_hardware_limit.ipynb").read_text("utf-8")
    (there,) = re.findall(r'"gamma 1 +(\d\.\d\d) \+- \S+ times as fast as plain', book)
    assert float(there) > 1 > float(at_1)
