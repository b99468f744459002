"""notebooks/ENGINES.md: what it says of numbers that can be worked out, and of the script by hand, is so."""

import json
import re

import pytest

from tests.engine_vllm import __main__ as script
from tests.engine_vllm import server
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
    assert "50,304 = 2\u2077 \u00b7 3 \u00b7 131" in PAGE and 50304 == 2**7 * 3 * 131 == -(-VOCABULARY // 64) * 64


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
