"""`python -m spec_lib`: output, and refusals in one sentence before anything is loaded."""

import os
import re
import subprocess
import sys

import pytest

from spec_lib import __main__ as cli
from spec_lib import pairs
from tests.helpers.paths import ROOT


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--gamma", "0"], "--gamma must be a whole number of at least 1, got 0"),
        (["--gamma", "two"], "invalid int value: 'two'"),
        (["--temperature", "-1"], "temperature must be a finite number"),
        (["--temperature", "nan"], "temperature must be a finite number"),
        (["--top-p", "1.5"], "top_p must be above 0"),
        (["--top-k", "-2"], "top_k must be a whole number"),
        (["--seed", "99999999999999999999999"], "a seed must fit into 64 bits"),
        (["--max-new-tokens", "0"], "--max-new-tokens must be a whole number of at least 1, got 0"),
        (["--compare", "--max-new-tokens", "4"], "4 new tokens are no full round at gamma 4"),
        (["--rule", "other"], "invalid choice: 'other'"),
        (["--drafter", "other"], "invalid choice: 'other'"),
        (["--noise", "other"], "invalid choice: 'other'"),
        (["--drafter", "head", "--forward", "transformers"], "--drafter head needs our own forward pass: leave out"),
        (["--noise", "shared", "--rule", "google"], "--noise shared has a rule of its own: leave out --rule google"),
        (["--drafter", "exit", "--forward", "transformers"], "--drafter exit needs our own forward pass: leave out"),
        (["--target", "a/b/c", "--draft", "x"], "'a/b/c' is neither a folder here nor a model id"),
        (["--target", "openai-community/gpt2"], "needs a draft"),
        (["--target", "tinny"], 'name one too (or "tiny" alone, the embedded pair)'),
        (["--target", "openai-community/gpt2", "--draft", "medium"], "medium is a draft of the embedded pair, tiny"),
        (["--drafter", "ngram", "--draft", "small"], "drafts without a draft model: leave out --draft small"),
        (["--draft", "distilgpt2"], "needs a target"),
        (["--target", "tiny", "--draft", "huge"], "there is no 'huge'"),
    ],
)
def test_bad_arguments_end_in_one_sentence_before_anything_is_loaded(arguments, named, capsys, monkeypatch):
    def load(*a, **k):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("spec_lib.load_pair", load)
    monkeypatch.setattr(pairs, "load_pair", load)
    try:
        code = cli.main(["generate", "Once", *arguments])
    except SystemExit as stop:  # argparse's way out
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and named in err
    assert len(err.strip().split("\n")) == 1


def test_a_model_that_cannot_be_had_is_one_sentence(capsys):
    assert cli.main(["generate", "x", "--target", "no-such/model", "--draft", "no-such/draft"]) == 2
    err = capsys.readouterr().err
    assert "Could not load no-such/model" in err and len(err.strip().split("\n")) == 1


def run(*arguments, **environment):
    env = {**os.environ, "SPEC_PAIR": "tiny", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-m", "spec_lib", *arguments], capture_output=True, text=True, env=env, cwd=ROOT
    )


WRITE = ("generate", "Once upon a time", "--seed", "1", "--max-new-tokens", "40")


@pytest.fixture(scope="module")
def coloured() -> subprocess.CompletedProcess:
    """Each process costs seconds, so that one text is written in colour for both tests."""
    return run(*WRITE, "-v", FORCE_COLOR="1")


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_verbose_colours_tokens_lists_rejections_and_sums_up(coloured):
    assert coloured.returncode == 0 and coloured.stderr == ""
    assert "\x1b[4;32m" in coloured.stdout and "\x1b[1;35m" in coloured.stdout
    rejected = len(re.findall(r"^round \d+, position \d+: rejected \S+, wrote \S+$", coloured.stdout, re.M))
    accepted, counted = map(int, re.search(r"\((\d+) accepted, (\d+) rejected\)", coloured.stdout).groups())
    assert rejected == counted > 0 and accepted > 0
    plain = run(*WRITE)
    assert plain.stdout.startswith("Once upon a time") and "\x1b" not in plain.stdout
    assert bare(coloured.stdout).startswith(plain.stdout.rstrip("\n"))


def test_the_same_seed_gives_the_same_text_and_no_colour_is_respected(coloured):
    again = run(*WRITE, "-v", NO_COLOR="1")
    legend = re.sub(r"^(\w+) \((?:underlined|bold|italic)\):", r"\1:", bare(coloured.stdout), flags=re.M)
    assert again.stdout == legend and "\x1b" not in again.stdout


def test_a_terminal_that_lacks_a_character_still_shows_the_rest():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "SPEC_PAIR": "tiny", "OMP_NUM_THREADS": "1"}
    words = ["generate", "caf\u00e9", "--max-new-tokens", "8", "--seed", "1", "-v"]
    run = subprocess.run(
        [sys.executable, "-m", "spec_lib", *words], capture_output=True, cwd=ROOT, env=environment, timeout=300
    )
    assert run.returncode == 0 and run.stderr == b"" and b"acceptance rate" in run.stdout


def test_bytes_that_are_no_text_are_refused_in_a_sentence(capsys):
    assert cli.main(["generate", "a\udcff b", "--target", "tiny"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_a_device_that_torch_has_no_module_for_is_refused(capsys):
    assert cli.main(["generate", "a", "--target", "tiny", "--device", "meta"]) == 2
    assert "no meta" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="closes a stream the POSIX way")
def test_a_closed_output_is_no_error():
    command = [sys.executable, "-m", "spec_lib", "generate", "Once", "-v", "--max-new-tokens", "3"]
    env = {**os.environ, "SPEC_PAIR": "tiny", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, env=env, text=True)
    assert (done.returncode, done.stderr) == (0, "")
