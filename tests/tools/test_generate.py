"""`python -m spec_lib generate` and its comparison: all settings reach every loop."""

import re
import sys

import pytest
import torch

import spec_lib as sl
from spec_lib import Pair, Sampling, benchmark, drafters, generating, options
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
    said = generating.comparison(options.parser().parse_args(words), both, runs=4)
    assert said.endswith(f"{ratio} times as fast")
    assert f"plain {10 / plain:.0f} tokens/s, speculative {10 / fast:.0f} tokens/s" in said


# --- what drafts, and how it is verified ------------------------------------------------------------------------------


WRITE = ["generate", "Once upon a time", "--seed", "3", "--max-new-tokens", "12"]
SHORT = ["generate", "1 2 3", "--ignore-eos", "--max-new-tokens", "20"]


@pytest.mark.parametrize("drafter", ["model", "ngram", "exit"])
@pytest.mark.parametrize("rule", ["google", "deepmind", "block"])
def test_every_drafter_and_rule_writes_the_targets_text(told, capsys, drafter, rule):
    both, _ = told
    words = [*SHORT, "--temperature", "0", "--drafter", drafter, "--rule", rule]
    assert cli.main(words) == 0
    expected = plain_greedy(both.target, both.encode("1 2 3"), 20)
    assert capsys.readouterr().out.split() == ["1", "2", "3", *map(str, expected)]


def test_what_drafts_is_what_was_asked_for(told, capsys, monkeypatch):
    """And what is compared is the same: the drafter, the rule and the noise."""
    asked, written = [], []
    real, write = sl.speculative_rounds, comparison._write
    monkeypatch.setattr(
        sl,
        "speculative_rounds",
        lambda t, draft, ids, n, **o: asked.append((draft, o["rule"], o["generator"])) or real(t, draft, ids, n, **o),
    )
    monkeypatch.setattr(comparison, "_write", lambda pair, *a: written.append(pair) or write(pair, *a))
    for words, kind, rule, noise in (
        ([], sl.GPT2, None, int),
        (["--forward", "transformers"], torch.nn.Module, None, int),
        (["--rule", "block"], sl.GPT2, "block", int),
        (["--drafter", "ngram", "--rule", "deepmind"], drafters.NGram, "deepmind", int),
        (["--drafter", "ngram", "--forward", "transformers"], drafters.NGram, None, int),
        (["--drafter", "exit", "--noise", "shared"], drafters.EarlyExit, None, sl.SharedNoise),
    ):
        asked.clear(), written.clear()
        assert cli.main([*SHORT, "--seed", "1", "--compare", *words]) == 0
        assert "times as fast" in capsys.readouterr().out
        ((draft, heard, generator),) = asked
        assert isinstance(draft, kind) and heard == rule and isinstance(generator, noise), words
        compared = [p for p in written if hasattr(p, "plug")]
        assert len(compared) == len(written) / 2 and {type(p.draft) for p in compared} == {type(draft)}
        assert {p.plug.rule for p in compared} == {rule} and {p.plug.randomness for p in compared} == {noise}


def test_with_shared_noise_the_text_is_that_of_plain_decoding(told, capsys, monkeypatch):
    """Whatever drafts.  Without a seed one is made up, and -v tells it."""
    both, _ = told
    ids, made_up = both.encode("1 2 3"), iter((2**63 - 1, 0, 8020010))
    monkeypatch.setattr("secrets.randbelow", lambda n: next(made_up))  # the same in every run of this test
    for words in (["--drafter", "ngram"], ["--drafter", "exit"], ["--gamma", "2"]):
        assert cli.main([*SHORT, "--noise", "shared", "-v", *words]) == 0
        text, *lines = capsys.readouterr().out.splitlines()
        (line,) = [line for line in lines if line.startswith("shared noise: ")]
        assert line.startswith("shared noise: plain decoding writes this same text with the noise of seed ")
        plain = sl.autoregressive(both.target, ids, 20, generator=sl.SharedNoise(int(line.split()[-1])))
        assert text.split() == ["1", "2", "3", *both.decode(plain.tokens).split()]  # the end of a text is not shown
        assert re.search(r"^acceptance rate \d\.\d\d \(", "\n".join(lines), re.M)
    seeded = []
    for drafter in ("model", "ngram"):
        assert cli.main([*SHORT, "--noise", "shared", "--seed", "7", "-v", "--drafter", drafter]) == 0
        seeded.append(capsys.readouterr().out.splitlines())
    assert seeded[0][0] == seeded[1][0] and any(line.endswith("noise of seed 7") for line in seeded[0])


def test_an_acceptance_rate_that_is_not_defined_is_told_in_words(told, capsys):
    """NaN under block verification, and where nothing was drafted."""
    assert cli.main([*SHORT, "--rule", "block", "--seed", "1", "-v"]) == 0
    out = capsys.readouterr().out
    said = re.search(
        r"^acceptance rate not defined where a block is verified as a whole \((\d+) accepted, (\d+) rounds? ended by a "
        r"rejection\), \d\.\d\d tokens per target pass$",
        out,
        re.M,
    )
    lines = re.findall(r"^round \d+, position \d+: rejected \S+, wrote \S+$", out, re.M)
    assert len(lines) == int(said[2]) > 0 and int(said[1]) > 0 and "nan" not in out
    one = ["generate", "1 2 3", "--max-new-tokens", "1", "--ignore-eos", "-v"]  # no room for a draft
    assert cli.main(one) == 0
    assert "acceptance rate not defined: no draft token was verified, 1.00 tokens per" in capsys.readouterr().out


def test_the_trained_head_drafts_for_the_embedded_target_alone(told, capsys):
    """Another target is refused in a sentence before the text."""
    assert cli.main([*SHORT, "--drafter", "head"]) == 2
    said = capsys.readouterr()
    assert (
        not said.out and "the shipped head is for the embedded target alone" in said.err and said.err.count("\n") == 1
    )


def test_with_the_trained_head_the_text_is_the_targets(capsys):
    texts = []
    for drafter in ("model", "head"):
        assert cli.main([*WRITE, "--target", "tiny", "--temperature", "0", "-v", "--drafter", drafter]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0].splitlines()[0] == texts[1].splitlines()[0]
    assert re.search(r"^accepted: draft token that the target accepted, \d+$", texts[1], re.M)


def test_a_drafter_that_needs_our_own_pass_is_refused_in_a_sentence_before_the_text(capsys, monkeypatch):
    from tests.helpers.models import tiny_of

    pair = Pair(tiny_of("llama"), tiny_of("llama"), Numbers())
    monkeypatch.setattr(sl, "load_pair", lambda *a, **k: pair)
    assert cli.main([*SHORT, "--drafter", "exit"]) == 2
    said = capsys.readouterr()
    assert not said.out and "--drafter exit needs our own forward pass: the target: LlamaForCausalLM is" in said.err
    assert said.err.count("\n") == 1
    assert cli.main([*SHORT, "--drafter", "ngram", "--rule", "block"]) == 0  # on transformers' pass


# --- whose forward pass -----------------------------------------------------------------------------------------------


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


@pytest.mark.reported
@pytest.mark.parametrize(
    ("environment", "terminal", "want"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
    ids=str,
)
def test_who_gets_colours(environment, terminal, want, monkeypatch):
    """Escape sequences came to files and to terminals that show them as they are (cli/cli issue 1086,
    juanfont/headscale issue 993, Sinotrade/Shioaji issue 206).

    Right: as Python's own messages are coloured: NO_COLOR, FORCE_COLOR, TERM=dumb and then the stream decide.
    """
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert generating.coloured() is want
