"""notebooks/ENGINES.md: what it says of numbers that can be worked out, and of the script by hand, is so."""

import json
import re
from collections import Counter

import pytest
import torch

import spec_lib as sl
from tests.engine_vllm import __main__ as script
from tests.engine_vllm import ours, server
from tests.helpers.paths import NOTEBOOKS, ROOT

PAGE = (NOTEBOOKS / "ENGINES.md").read_text("utf-8")
VOCABULARY, PADDED_TO = 50257, 64
HEADS = {"distilgpt2": 12, "gpt2": 12, "gpt2-medium": 16, "gpt2-large": 20, "gpt2-xl": 25}
LAYERS = {"distilgpt2": 6, "gpt2": 12, "gpt2-medium": 24, "gpt2-large": 36, "gpt2-xl": 48}


def sizes(heads: int) -> list[int]:
    """Into how many parts a GPT-2 can be cut: by its heads, and by its vocabulary, padded."""
    rows = -(-VOCABULARY // PADDED_TO) * PADDED_TO
    return [n for n in range(1, heads + 1) if heads % n == 0 and rows % n == 0]


@pytest.mark.parametrize("name", HEADS)
def test_the_sizes_of_tensor_parallelism_are_those_that_divide(name):
    (row,) = re.findall(rf"^\| {name} \|(.*)\|$", PAGE, re.M)
    heads, alone, paired, layers = (cell.split() for cell in row.split("|"))
    assert ([int(x) for x in heads], [int(x) for x in layers]) == ([HEADS[name]], [LAYERS[name]])
    assert [int(x) for x in alone] == sizes(HEADS[name])
    assert [int(x) for x in paired] == [n for n in sizes(HEADS[name]) if n in sizes(HEADS["distilgpt2"])]


def test_the_padded_vocabulary_is_the_product_that_is_shown():
    assert (
        "50,304 = 2\u2077 \u00b7 3 \u00b7 131" in " ".join(PAGE.split())
        and 50304 == 2**7 * 3 * 131 == -(-VOCABULARY // 64) * 64
    )


def test_the_commands_are_those_that_the_script_runs(tmp_path):
    """Flags, their values, variables and the two configurations of speculation."""
    (block,) = re.findall(r"```bash\n(python -m tests\.engine_vllm.*?)```", PAGE, re.S)
    asked = server.surroundings(tmp_path / "venv" / "bin" / "python", tmp_path, tmp_path / "cure")
    variables = dict(re.findall(r"\b([A-Z_]+)=(\S+)", block))
    for name in ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_KVCACHE_SPACE", "HF_HUB_OFFLINE"):
        assert variables.pop(name) == asked[name]
    assert variables.keys() <= asked.keys()
    source = (ROOT / "tests" / "engine_vllm" / "server.py").read_text("utf-8")
    flags = re.findall(r"--[a-z-]+", block)
    assert len(flags) > 6 and all(f'"{flag}"' in source for flag in flags)
    configurations = {setting.name: setting.speculation for setting in script.settings(tmp_path)}
    drawn = configurations["draft model, probabilistic"] | {"model": "pair/medium"}
    shown = [json.loads(found) for found in re.findall(r"\{\"method\".*?\}", PAGE)]
    assert shown == [drawn, configurations["n-gram"]]


def test_alpha_from_the_counters():
    """Three rounds of four draft tokens: none, two and all four accepted, so that two ended by a rejection."""
    counted = {"drafts": 3, "draft_tokens": 12, "accepted_tokens": 6, "0": 2, "1": 2, "2": 1, "3": 1}
    assert script.alpha_of(counted) == 6 / (6 + 2)


def drawn(exact: ours.Exact, texts: int) -> list[list[int]]:
    """Texts of three tokens from the exact distribution, of which the rare ones end in token 0."""
    generator, groups = torch.Generator().manual_seed(0), {(): texts}
    for _ in range(3):
        longer = Counter()
        for text, count in groups.items():
            p = torch.tensor([exact.next[text][t] for t in range(2048)] if text in exact.next else [1.0])
            for t in torch.multinomial(p, count, replacement=True, generator=generator).tolist():
                longer[(*text, t)] += 1
        groups = longer
    return [list(text) for text, count in groups.items() for _ in range(count)]


def test_the_scripts_own_side_still_runs_and_its_test_can_fail():
    """Texts of the right distribution pass, those of temperature 0.9 and of one wrong second token do not."""
    exact, control = ours.Exact(1.0, 2000), ours.Exact(0.9, 2000)
    texts = drawn(exact, 2000)
    assert min(one.p_value for one in exact.tests(texts).values()) > 0.01
    assert max(one.p_value for one in exact.tests(drawn(control, 2000)).values()) < 1e-4
    wrong = exact.tests([[a, texts[0][1], c] for a, _, c in texts])
    assert wrong["first"].p_value > 0.01 > 1e-9 > max(wrong["second"].p_value, wrong["three"].p_value)


def test_the_scripts_rounds_are_whole_and_cover_the_text():
    pair = sl.load_pair("tiny")
    greedy = sl.Sampling(0)
    rounds = ours.rounds_as_vllm(pair, pair.encode(ours.BEGINNINGS[0]), greedy, greedy, 0)
    assert all(len(r.drafted) == ours.GAMMA for r in rounds)
    assert 1 + sum(len(r.tokens) for r in rounds[:-1]) < ours.NEW <= 1 + sum(len(r.tokens) for r in rounds)
    found = ours.acceptance([rounds, rounds])
    assert found.drafts == 2 * len(rounds) and found.alpha == pytest.approx(sl.summarize(rounds).alpha)
    assert found.tokens_per_pass == pytest.approx(1 + found.share * ours.GAMMA) and found.error == pytest.approx(0)


def test_notebook_07_quotes_the_pages_acceptance_rates():
    """K drafts greedily, the default, and H from q: as installed, and then repaired."""
    alphas = [
        re.search(rf"(?m)^\| {re.escape(row)} \|[^|]*\| (\.\d+)", PAGE)[1]
        for row in (
            "*as installed:* draft model, default",
            "*as installed:* draft model, probabilistic",
            "draft model, default",
            "draft model, probabilistic",
        )
    ]
    k, h, k_repaired, h_repaired = (f"{float(a):.2f}"[1:] for a in alphas)
    quoted = f"was {k} in K's setting and {h} in H's, against {k_repaired} and {h_repaired} once repaired"
    assert quoted in (NOTEBOOKS / "07_is_it_exact.ipynb").read_text("utf-8")


def test_notebook_07_counts_the_pages_greedy_texts():
    """Of each of the five settings the page has all texts equal, and the notebook asks about as many."""
    equal = set(re.findall(r"(?m)^\| [^|]+ \| (\d+ of \d+) \|", PAGE))
    (texts,) = {int(cell.split(" of ")[1]) for cell in equal}
    assert equal == {f"{texts} of {texts}"}
    notebook = (NOTEBOOKS / "07_is_it_exact.ipynb").read_text("utf-8")
    for said in (
        "written {} texts of 64 tokens at temperature 0",
        "How many of the {} will",
        "**None of the {} differed**",
    ):
        assert said.format(texts) in notebook
