"""A folder that is no model: one sentence says what it lacks and what to do."""

import json
import shutil

import pytest
import torch

from spec_lib import load_pair
from spec_lib.pairs import TINY


def folder_of(place, remove=(), **write):
    """A copy of the embedded target, without some files and with others."""
    shutil.copytree(TINY / "target", place)
    for name in remove:
        (place / name).unlink()
    for name, content in write.items():
        (place / name.replace("__", ".")).write_text(content)
    return place


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
WEIGHTS = ("model.safetensors",)
BROKEN = {  # what is done to a good folder, and what must be said of it
    "no tokenizer": (TOKENIZER, {}, "it has no tokenizer: copy tokenizer.json"),
    "no tokenizer.json": (TOKENIZER[:1], {}, "it has no tokenizer: copy tokenizer.json"),
    "another kind of tokenizer": (TOKENIZER, {"tokenizer__model": "x"}, "its tokenizer cannot be read ("),
    "half a tokenizer": (TOKENIZER, {"vocab__json": "{}"}, "its tokenizer cannot be read ("),
    "a damaged tokenizer": ((), {"tokenizer__json": '{"a": 3}'}, "its tokenizer cannot be read ("),
    "no config": (("config.json",), {}, "it has no config.json: name the folder"),
    "a config of nothing": ((), {"config__json": "{}"}, "its config.json names no kind of model"),
    "a config that is no JSON": ((), {"config__json": "{"}, "its config.json cannot be read ("),
    "a config of other types": (
        (),
        {"config__json": '{"model_type": "gpt2", "n_layer": "2"}'},
        "its config.json cannot",
    ),
    "an unknown model": ((), {"config__json": '{"model_type": "mine"}'}, "its config.json names no kind of model"),
    "no weights": (WEIGHTS, {}, "it has no weights (model.safetensors): copy"),
    "empty weights": (WEIGHTS, {"pytorch_model__bin": ""}, "a file of it is damaged (EOFError): try again"),
    "cut weights": ((), {"model__safetensors": "x"}, "a file of it is damaged ("),
    "gguf": (
        (*WEIGHTS, "config.json"),
        {"m__gguf": "x"},
        "it holds a GGUF file, which is for other programs: download",
    ),
    "adapter": ((*WEIGHTS, "config.json"), {"adapter_config__json": "{}"}, "it holds an adapter, which is no model"),
}


def said_of(target, draft) -> str:
    with pytest.raises((OSError, ValueError)) as error:
        load_pair(str(target), str(draft))
    said = str(error.value)
    assert "\n" not in said and len(said) < 500
    return said


@pytest.mark.parametrize("kind", BROKEN)
def test_what_a_folder_lacks_is_said_in_one_sentence(kind, tmp_path):
    """A folder without a tokenizer ended in "Couldn't instantiate the backend tokenizer from one of: ;", and where the
    configuration was wrong the tokenizer was blamed (huggingface/transformers pull request 43070).

    Right: what is missing and what to do.  Siblings: no configuration, no weights, damaged files, files of another
    kind; as the target, which comes first, and as the draft.
    """
    remove, write, expected = BROKEN[kind]
    good, bad = folder_of(tmp_path / "good"), folder_of(tmp_path / "bad", remove, **write)
    for pair in ((bad, good), (good, bad)):
        assert said_of(*pair).startswith(f"Could not load {bad}: {expected}")


def test_a_folder_that_is_empty_or_one_too_high_or_a_file(tmp_path):
    good, empty = folder_of(tmp_path / "run" / "checkpoint-5"), tmp_path / "empty"
    empty.mkdir()
    assert "the folder is empty: name the one that save_pretrained wrote" in said_of(empty, good)
    assert "it has no config.json, but checkpoint-5 in it has one: name that folder" in said_of(tmp_path / "run", good)
    for file in ("config.json", "model.safetensors"):
        assert "is a file: name the folder with" in said_of(good / file, good)
        assert "is a file: name the folder with" in said_of(good, good / file)


def test_what_is_not_needed_may_be_missing(tmp_path):
    """A tokenizer.json alone will do, and so will the two files of an older tokenizer."""
    old = folder_of(tmp_path / "old", TOKENIZER)
    model = json.loads((TINY / "target" / "tokenizer.json").read_text("utf-8"))["model"]
    (old / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    (old / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
    new = folder_of(tmp_path / "new", TOKENIZER[1:])
    pair = load_pair(str(new), str(old))
    assert pair.decode(pair.encode("Once upon a time")) == "Once upon a time"


def test_a_model_that_is_its_own_draft_model_is_loaded_once(tmp_path, capsys, monkeypatch):
    """And a drafter that needs no draft model asks for none; the target stands in its place."""
    from spec_lib import __main__ as cli

    folder, made = str(folder_of(tmp_path / "model")), []
    pair = load_pair(folder, folder)
    assert pair.draft is pair.target and pair.decode(pair.encode("a king")) == "a king"
    monkeypatch.setattr("spec_lib.load_pair", lambda *given, **more: made.append(load_pair(*given, **more)) or made[-1])
    texts = []
    for more in (["--drafter", "ngram"], ["--drafter", "exit"], ["--draft", folder]):
        words = ["generate", "Once upon a time", "--target", folder, "--temperature", "0", "--max-new-tokens", "8"]
        assert cli.main([*words, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert texts == texts[:1] * 3 and all(one.draft is one.target for one in made) and len(made) == 3


@pytest.mark.reported
def test_shared_weights_that_were_saved_under_either_name(tmp_path):
    """Where the file had the output matrix alone, the embedding was random, or on no device, and nothing was said
    (huggingface/transformers issues 38870 and 41038).

    Right: the same model from the embedding alone, from the output matrix alone and from both; two different ones are
    two; neither is refused.
    """
    from safetensors.torch import load_file, save_file

    ids, logits = torch.arange(9)[None], {}
    name, head = "transformer.wte.weight", "lm_head.weight"
    given = {key: value.float() for key, value in load_file(TINY / "target" / "model.safetensors").items()}
    for kind, twice in (("embedding", {}), ("both", {head: given[name]}), ("head", {head: given[name], name: None}),
                        ("two", {head: given[name] * 2})):  # fmt: skip
        place = folder_of(tmp_path / kind)
        weights = {key: value.clone() for key, value in {**given, **twice}.items() if value is not None}
        save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
        pair = load_pair(str(place), str(place))
        with torch.no_grad():
            logits[kind] = pair.target(ids).logits
    assert torch.equal(logits["embedding"], logits["both"]) and torch.equal(logits["embedding"], logits["head"])
    torch.testing.assert_close(logits["two"], 2 * logits["embedding"])
    place = folder_of(tmp_path / "neither")
    save_file({k: v for k, v in given.items() if k != name}, place / "model.safetensors", metadata={"format": "pt"})
    assert "its weights do not fit its config.json (lm_head.weight is missing" in said_of(place, place)
