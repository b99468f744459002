"""`python -m spec_lib generate` and its comparison: all settings reach every loop."""

import pytest
import torch

import spec_lib as sl
from spec_lib import Pair, Sampling, benchmark, options
from spec_lib import __main__ as cli
from spec_lib.benchmark import comparison, timing
from tests.helpers.models import plain_greedy
from tests.helpers.tokenizers import Numbers


@pytest.fixture
def told(pair, monkeypatch):
    """The command line with a pair of models of digits; what the loops are told is noted."""

    heard = []

    def note(name, real):
        def call(*args, **options):
            sampling = options.get("sampling") or next((a for a in args if isinstance(a, Sampling)), None)
            heard.append((name, sampling, options.get("gamma"), options.get("draft_sampling")))
            return real(*args, **options)

        return call

    for name in ("autoregressive", "speculative", "speculative_rounds"):
        monkeypatch.setattr(sl, name, note(name, getattr(sl, name)))
        if hasattr(comparison, name):
            monkeypatch.setattr(comparison, name, note(name, getattr(comparison, name)))
    both = Pair(*pair, Numbers(), prompts={"one": "1 2 3"})
    monkeypatch.setattr(sl, "load_pair", lambda *a, **k: both)
    return both, heard


@pytest.mark.reported
def test_every_loop_hears_all_the_settings(told, capsys, monkeypatch):
    """Settings reached one of the two models, one of the two loops, or the last token only: unlike was compared.

    Right: plain and speculative loops, under `generate`, `--compare` and the benchmark, all hear the same temperature,
    top-k and top-p, and no draft has other ones.
    """
    both, heard = told
    want = Sampling(0.5, 2, 0.9)
    words = ["--temperature", "0.5", "--top-k", "2", "--top-p", "0.9", "--max-new-tokens", "6", "--gamma", "2"]
    assert cli.main(["generate", "1 2", *words, "--compare"]) == 0
    assert {name for name, *_ in heard} == {"autoregressive", "speculative", "speculative_rounds"}
    assert {s for _, s, _, _ in heard} == {want} and {d for *_, d in heard} == {None}
    assert {g for name, _, g, _ in heard if name != "autoregressive"} == {2}
    heard.clear()
    generate, theirs = both.target.generate, []
    monkeypatch.setattr(
        both.target, "generate", lambda *a, **o: theirs.append((both.target.generation_config, o)) or generate(*a, **o)
    )
    setting = benchmark.Setting(gamma=2, new=6, temperature=0.5, top_k=2, top_p=0.9)
    benchmark.compare(both, setting, 1)
    assert {name for name, *_ in heard} == {"autoregressive", "speculative"}
    assert {s for _, s, _, _ in heard} == {want}
    assert {(c.temperature, c.top_k, c.top_p) for c, _ in theirs} == {(0.5, 2, 0.9)}
    assert all(o["attention_mask"].tolist() == [[1, 1, 1]] and c.pad_token_id is not None for c, o in theirs)


@pytest.mark.reported
def test_an_empty_prompt_on_the_command_line(told, capsys):
    """An empty prompt ended in an error about the shape of a tensor.

    Right: the tokenizer's start or end token opens the text and is not shown.  Siblings: a tokenizer without either, in
    one sentence; the benchmark.
    """
    both, _ = told
    assert cli.main(["generate", "", "--max-new-tokens", "5", "--seed", "1", "--temperature", "0", "--ignore-eos"]) == 0
    out = capsys.readouterr().out.split()
    assert out == [str(t) for t in plain_greedy(both.target, torch.tensor([[30]]), 5) if t != 30]
    assert benchmark.prompts_for(both, benchmark.Setting(prompt="", new=6), ("target alone",))[0].tolist() == [[30]]
    both.tokenizer.eos_token_id = None
    assert cli.main(["generate", ""]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    """Time passes only where a test says so."""
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


@pytest.mark.reported
@pytest.mark.parametrize(("plain", "fast", "ratio"), [(2.0, 2.0, "1.00"), (1.0, 2.5, "0.40"), (3.0, 1.0, "3.00")])
def test_a_comparison_counts_neither_the_warm_up_nor_its_own_order(told, clock, monkeypatch, plain, fast, ratio):
    """Two equal loops differed, as the first paid for the warm-up; and where speculation lost, nothing was said.

    Right, with a clock that the test turns: equal loops are 1.00 times as fast, a slower one is 0.40 times as fast and
    says so.  Siblings: tokens a second count new tokens only, however long the prompt.
    """
    both, _ = told

    def write(pair, setting, variant, ids, seed):
        assert ids.shape[1] == 30  # the prompt that was given, though it has the name of one of the pair's own
        clock((plain if variant == "target alone" else fast) if seed else 50)
        return setting.new, 5, 3, 1

    monkeypatch.setattr(comparison, "_write", write)
    given = " ".join("7" for _ in range(30))
    both.prompts[given] = "1 2 3"
    words = ["generate", given, "--max-new-tokens", "10", "--compare"]
    said = cli.comparison(options.parser().parse_args(words), both, runs=4)
    assert said.endswith(f"{ratio} times as fast")
    assert f"plain {10 / plain:.0f} tokens/s, speculative {10 / fast:.0f} tokens/s" in said


# --- whose forward pass -----------------------------------------------------------------------------------------------


WRITE = ["generate", "Once upon a time", "--seed", "3", "--max-new-tokens", "12"]


def test_the_text_is_the_same_on_either_forward_pass(capsys):
    texts = []
    for more in ([], ["--forward", "own"], ["--forward", "transformers"]):
        assert cli.main([*WRITE, "--target", "tiny", "-v", *more]) == 0
        said = capsys.readouterr()
        text, *_, last = said.out.strip().splitlines()
        texts.append(text)
        whose = "of transformers" if "transformers" in more else "our own (spec_lib.GPT2)"
        assert last == f"forward pass: {whose}"
        assert not said.err
    assert texts[0] == texts[1] == texts[2]


def test_another_architecture_goes_on_with_transformers_and_says_so(capsys, monkeypatch):
    from tests.helpers.models import tiny_of

    tiny = sl.load_pair("tiny")
    size = len(tiny.tokenizer)
    pair = sl.Pair(tiny.target, tiny_of("llama", vocab=size), tiny.tokenizer)
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pair)
    assert cli.main([*WRITE, "-v"]) == 0
    said = capsys.readouterr()
    assert said.out.strip().endswith("forward pass: of transformers")
    assert said.err == (
        "On transformers' forward pass: the draft: LlamaForCausalLM is not of GPT-2's architecture (GPT2LMHeadModel): "
        "go on with transformers.\n"
    )
    assert cli.main([*WRITE, "--forward", "transformers"]) == 0
    assert not capsys.readouterr().err
    assert cli.main([*WRITE, "--forward", "own"]) == 2
    said = capsys.readouterr()
    assert not said.out and "the draft: LlamaForCausalLM is not of GPT-2's architecture" in said.err
