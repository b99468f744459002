"""`python -m spec_lib export`: folders that other programs load as they are, and all of them or none."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import spec_lib as sl
from spec_lib import __main__ as cli
from spec_lib import exporting, files

NAMES = ("target", "small", "medium", "large")
ODD = (
    "", " ", "  two leading blanks", "trailing blank ", "\n", "a\n\n\nb", "\ttab\r\n", "caf\u00e9 \u4f60\u597d",
    "\U0001f600 and \U0001f469\u200d\U0001f469\u200d\U0001f467", "e\u0301 is not \u00e9", "'Don't', said he .", "\x00",
    "<|endoftext|>", "Once<|endoftext|> upon", "x" * 300, "\u202eturned round", "\ufffd",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("export") / "some" / "pair"
    assert cli.main(["export", str(made)]) == 0
    return made


@pytest.fixture(scope="module")
def drafts() -> dict[str, sl.Pair]:
    return {name: sl.load_pair("tiny", name) for name in NAMES[1:]}


def model(folder: Path, name: str) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder / name).eval()


@pytest.mark.parametrize("name", NAMES)
def test_transformers_loads_a_model_whose_logits_are_ours_to_the_last_bit(name, folder, drafts):
    """With nothing said but the folder's name: no dtype, no class."""
    pair = drafts["medium" if name == "target" else name]
    ours = pair.target if name == "target" else pair.draft
    theirs, inputs = model(folder, name), AutoTokenizer.from_pretrained(folder / name)("a b" * 40, return_tensors="pt")
    assert theirs.dtype == torch.float32 and theirs.config.architectures == ["GPT2LMHeadModel"]
    with torch.no_grad():
        logits = theirs(**inputs).logits
        assert logits.shape[1] > 40 and torch.equal(logits, ours(inputs["input_ids"]).logits)
    weights, stored = ours.state_dict(), load_file(folder / name / "model.safetensors")
    assert all(torch.equal(x, weights[key]) and x.dtype == torch.float32 for key, x in stored.items())
    assert weights.keys() - stored.keys() == {"lm_head.weight"}  # tied


@pytest.mark.parametrize("name", NAMES)
def test_the_tokenizer_is_ours_on_odd_texts(name, folder, drafts):
    ours, theirs = drafts["medium"].tokenizer, AutoTokenizer.from_pretrained(folder / name)
    for text in ODD:
        ids = theirs(text)["input_ids"]
        assert ids == ours(text)["input_ids"], text
        assert theirs.decode(ids) == ours.decode(ids, clean_up_tokenization_spaces=False) == text
    assert (theirs.eos_token_id, theirs.bos_token_id, theirs.model_max_length) == (0, 0, 1024)
    sl.pairs.check_vocabulary(ours, theirs)


def plain(model, ids: torch.Tensor, new: int, seed: int) -> list[int]:
    """Ids drawn one after the other from the model's own softmax by `torch.multinomial`, as `generate` draws them."""
    torch.manual_seed(seed)
    for _ in range(new):
        with torch.no_grad():
            p = model(ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(p, 1)], 1)
    return ids[0].tolist()


def test_the_generation_defaults_change_nothing(folder, capsys, caplog):
    """transformers fills in top-k 50 where a folder does not speak of it, so that no sample is the model's.

    Right: samples of the model's own distribution, whether or not sampling is asked for, and greedy where that is.
    """
    target, tokenizer = model(folder, "target"), AutoTokenizer.from_pretrained(folder / "target")
    inputs = tokenizer("Once upon a time there was a king who had three", return_tensors="pt")
    for seed in range(3):
        expected = plain(target, inputs["input_ids"], 50, seed)
        for asked in ({}, {"do_sample": True}):
            torch.manual_seed(seed)
            found = target.generate(**inputs, **asked, max_new_tokens=50, use_cache=False)[0].tolist()
            assert found == expected[: len(found)] and (len(found) == len(expected) or found[-1] == 0)
    with torch.no_grad():  # were the likeliest 50 all that is drawn, these seeds would see it
        logits = target(torch.tensor([expected])).logits[0, inputs["input_ids"].shape[1] - 1 : -1]
    ranks = (logits > logits.gather(1, torch.tensor(expected[-50:])[:, None])).sum(1)
    assert ranks.max() >= 50
    greedy = target.generate(**inputs, do_sample=False, max_new_tokens=20)[0].tolist()
    assert greedy == target.generate(**inputs, top_k=1, max_new_tokens=20)[0].tolist()
    said = json.loads((folder / "target" / "generation_config.json").read_text("utf-8"))
    assert {key: said[key] for key in ("temperature", "top_k", "top_p", "eos_token_id")} == {
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "eos_token_id": 0}  # fmt: skip
    assert set(said) <= {"temperature", "top_k", "top_p", "do_sample", "bos_token_id", "eos_token_id", "pad_token_id"}


@pytest.mark.reported
def test_the_folder_says_that_the_output_matrix_is_the_embedding(folder, tmp_path):
    """Weights that are shared are saved once, and who did not know it found no lm_head (huggingface/transformers issue
    30202, turboderp/exllamav2 issue 408); a folder could be loaded and not saved again, since its generation_config
    contradicted itself (huggingface/transformers issue 29988, QwenLM/Qwen3-ASR issue 210).

    Right: config.json says so in words, not by a default; the generation settings are valid and come out as they went
    in; what is saved anew has the same logits.
    """
    from transformers import GenerationConfig

    source = folder / "small"
    assert json.loads((source / "config.json").read_text("utf-8"))["tie_word_embeddings"] is True
    weights = load_file(source / "model.safetensors")
    assert "transformer.wte.weight" in weights and "lm_head.weight" not in weights
    GenerationConfig.from_pretrained(source).validate(strict=True)
    first = AutoModelForCausalLM.from_pretrained(source)
    first.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    before, after = (GenerationConfig.from_pretrained(place).to_diff_dict() for place in (source, tmp_path))
    assert before == after and after["do_sample"] is True
    with torch.no_grad():
        ids = torch.arange(9)[None]
        assert torch.equal(first(ids).logits, again(ids).logits)


@pytest.mark.parametrize("draft", NAMES[1:])
def test_load_pair_takes_the_folders_and_writes_the_same_text(draft, folder, drafts):
    ours, theirs = drafts[draft], sl.load_pair(str(folder / "target"), str(folder / draft), device="cpu")
    written = []
    for pair in (ours, theirs):
        g = sl.speculative(pair.target, pair.draft, pair.encode("Once upon a time"), 40, generator=3)
        written.append((g.tokens.tolist(), [(r.accepted, r.drafted.tolist()) for r in g.rounds], pair.decode(g.tokens)))
    assert written[0] == written[1] and len(written[0][0]) == 40


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_what_it_is_and_its_lines_run(name, folder, monkeypatch, capsys):
    card = (folder / name / "README.md").read_text("utf-8")
    config = json.loads((folder / name / "config.json").read_text("utf-8"))
    kind = "the target model" if name == "target" else "a draft model"
    assert f"# {name}: {kind} of" in card and card.startswith("---\nlicense: apache-2.0\n")
    parameters = sum(x.numel() for x in model(folder, name).parameters())
    shape = f"layers {config['n_layer']}, width {config['n_embd']}, heads {config['n_head']}"
    assert f"({shape}, parameters {parameters:,})" in card and "{" not in card
    assert max(map(len, card.split("\n"))) <= 120
    monkeypatch.chdir(folder)
    torch.manual_seed(0)
    exec(re.search(r"```python\n(.*?)```", card, re.S)[1], {})
    assert capsys.readouterr().out.startswith("Once upon a time")


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_one_draft_alone_and_an_empty_folder_that_is_there(tmp_path, capsys, monkeypatch):
    """Files that anybody may read, as the umask says, though they were made in a folder that only we may."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", ".", "--draft", "small", "--target", "tiny"]) == 0
    assert capsys.readouterr().out == "Written: target, small\n"
    assert sorted(os.listdir(".")) == ["small", "target"]
    mask = os.umask(0)
    os.umask(mask)
    assert os.name == "nt" or all((path.stat().st_mode & 0o777) | mask == 0o777 for path in tmp_path.glob("*"))


def in_the_way(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Folders that cannot be exported to: what is given, and what must be said of it."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    return {
        "file": ("file", "is in the way and is no folder"),
        "file as a parent": ("file/pair", "file is in the way and is no folder"),
        "full": ("full", "is not empty (it holds .hidden): name a new folder"),
        "broken link": ("nowhere", "is in the way and is no folder"),
        "name": ("n" * 300, "File name too long"),
        "a name of a parent": ("n" * 300 + "/pair", "File name too long"),
        "empty": ("  ", "FOLDER must name a folder, got an empty name"),
    }


def said_of(capsys, *arguments: str) -> str:
    assert cli.main(["export", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.strip().split("\n")) == 1 and len(err) < 400
    return err


def no_work(*_):
    raise AssertionError("work was done")


def test_what_cannot_be_is_refused_in_a_sentence_before_any_work(tmp_path, monkeypatch, capsys):
    cases = in_the_way(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exporting, "files", no_work)
    before = tree(tmp_path)
    for kind, (given, said) in cases.items():
        assert said in said_of(capsys, given), kind
    assert "there is no 'huge'" in said_of(capsys, "new", "--draft", "huge")
    assert "only the embedded pair is exported, got --target gpt2" in said_of(capsys, "new", "--target", "gpt2")
    refused = PermissionError(13, "Permission denied")
    monkeypatch.setattr(files.tempfile, "NamedTemporaryFile", lambda **_: (_ for _ in ()).throw(refused))
    assert "cannot write new: Permission denied" in said_of(capsys, "new")
    assert tree(tmp_path) == before and (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    """At each write and at each move: what was there before is all that is there after."""
    (tmp_path / "empty").mkdir()
    full = OSError(28, "No space left on device")
    real = {"write": Path.write_bytes, "move": os.rename}

    def failing(kind: str, at: int):
        left = [at]

        def planted(*args):
            left[0] -= 1
            if left[0] < 0:
                raise full
            return real[kind](*args)

        return planted

    steps = [("write", 0), ("write", 1), ("write", 11), ("move", 0)]
    for given, more in (("empty", [("move", 1)]), ("new/deep", [])):  # a new folder is moved as a whole
        for kind, at in (*steps, *more):
            with monkeypatch.context() as patch:
                patch.setattr(*((Path, "write_bytes") if kind == "write" else (os, "rename")), failing(kind, at))
                assert "No space left on device" in said_of(capsys, str(tmp_path / given), "--draft", "small")
            assert tree(tmp_path) == ["empty"], (given, kind, at)
    assert cli.main(["export", str(tmp_path / "new/deep"), "--draft", "small"]) == 0  # the same, with room


def test_what_came_meanwhile_stays(tmp_path, monkeypatch, capsys):
    """Two exports into one folder at a time: the second ends with a sentence, the first one's files are whole."""
    real = files.save

    def slow(contents):
        real(contents)
        theirs = tmp_path / "pair" / "target"
        if not theirs.exists():
            theirs.mkdir(parents=True)
            (theirs / "theirs").write_text("first")

    monkeypatch.setattr(files, "save", slow)
    said_of(capsys, str(tmp_path / "pair"), "--draft", "small")
    assert tree(tmp_path) == ["pair", "pair/target", "pair/target/theirs"]


KILLED = """
import importlib.util, os, pathlib, signal, sys
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
step, at = sys.argv[3], int(sys.argv[4])
owner = pathlib.Path if step == "write_bytes" else os
real = getattr(owner, step)

def planted(*given):
    global at
    if at == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    at -= 1
    return real(*given)

setattr(owner, step, planted)
names = ["target/a", "target/b", "small/a", "small/b"]
files.save_folders(pathlib.Path(sys.argv[2]), {name: name for name in names})
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_new_folder_is_whole_or_absent_whenever_the_power_fails(tmp_path):
    found = []
    for step in ("write_bytes", "replace", "rename"):
        for at in range(5):
            folder = tmp_path / f"{step}{at}"
            command = [sys.executable, "-c", KILLED, files.__file__, folder, step, str(at)]
            code = subprocess.run([str(word) for word in command], stderr=subprocess.PIPE).returncode
            assert folder.exists() == (code == 0), (step, at)
            if code == 0:
                assert [name for name in tree(folder) if "/" in name] == ["small/a", "small/b", "target/a", "target/b"]
                assert folder.stat().st_mode == tmp_path.joinpath(folder.name, "target").stat().st_mode
            found.append(code)
    assert found.count(0) == 4 + 2 and set(found) == {0, -9}
