"""Pairs: vocabularies compared, texts encoded, models loaded from the hub's cache, a folder, or the module itself."""

import json
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

import spec_lib.pairs as pairs
from spec_lib import Pair, check_vocabulary, load_pair, setup_line
from spec_lib.devices import one_thread
from spec_lib.pairs import CLASSROOM_PAIR, REVISIONS, TINY, refuse_choice
from tests.helpers.hub import GPT2
from tests.helpers.models import tiny_gpt2
from tests.helpers.paths import ROOT
from tests.helpers.tokenizers import END, byte_bpe, byte_tokens, tokenizer_of


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_of(eos_token=END)


@pytest.fixture(scope="module")
def models():
    return tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258)


# --- one vocabulary ----------------------------------------------------------------------------------


def test_equal_vocabularies_pass_in_silence(tokenizer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_vocabulary(tokenizer, tokenizer_of(eos_token=END))


def test_swapped_ids_are_named(tokenizer, models):
    other = tokenizer_of(swap=(10, 11), eos_token=END)
    assert len(other) == len(tokenizer)  # the size says nothing
    ten, eleven = byte_tokens()[10:12]
    for check in (lambda: check_vocabulary(tokenizer, other), lambda: Pair(*models, tokenizer, other)):
        with pytest.raises(ValueError) as error:
            check()
        text = str(error.value)
        assert f"id 10 is {ten!r} to the target and {eleven!r} to the draft" in text
        assert "\n" not in text


def test_the_first_difference_is_named(tokenizer):
    with pytest.raises(ValueError, match="id 3 "):
        check_vocabulary(tokenizer, tokenizer_of(swap=(200, 3), eos_token=END))


def test_another_size_is_named_by_its_first_id(tokenizer):
    for a, b in ((tokenizer, tokenizer_of(extra=2, eos_token=END)), (tokenizer_of(extra=2, eos_token=END), tokenizer)):
        with pytest.raises(ValueError, match="id 258 is .*None"):
            check_vocabulary(a, b)


def test_different_ends_warn(tokenizer, models):
    other = tokenizer_of(eos_token="<|start|>")
    with pytest.warns(UserWarning, match="256 and 257.*target's counts"):
        check_vocabulary(tokenizer, other)
    with pytest.warns(UserWarning, match="256 and None"):
        Pair(*models, tokenizer, tokenizer_of())


# --- a pair in memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_model_with_too_few_rows_is_refused(tokenizer, models, role):
    narrow = tiny_gpt2(2, vocab=257)
    with pytest.raises(ValueError) as error:
        Pair(*((narrow, models[1]) if role == "target" else (models[0], narrow)), tokenizer)
    assert f"the {role} knows 257 tokens and the tokenizer has 258" in str(error.value)
    assert "\n" not in str(error.value)


def test_padded_tables_belong_to_the_same_vocabulary(tokenizer, models):
    pair = Pair(tiny_gpt2(2, vocab=272), models[1], tokenizer, tokenizer_of(eos_token=END))
    assert pair.device == torch.device("cpu")
    assert pair.target(pair.encode("ab")).logits.shape == (1, 2, 272)  # an ordinary call
    assert setup_line(pair).startswith("cpu | torch ")
    assert "\n" not in setup_line(pair)


def test_prompts_are_each_pairs_own(tokenizer, models):
    a, b = Pair(*models, tokenizer), Pair(*models, tokenizer)
    assert set(a.prompts) >= {"predictable", "open", "code"}
    a.prompts["mine"] = "x"
    assert "mine" not in b.prompts


TEXTS = [
    "Once upon a time",
    " leading and  double  spaces , and a space before a stop .",
    "naïve café — “quotes” … 王 \U0001f642 e\u0301",
    "lines\n\nand\ttabs\r\n",
    "do n't , I 'm",  # what clean-up of spaces would change
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_as_it_was(tokenizer, models, text):
    pair = Pair(*models, tokenizer)
    ids = pair.encode(text)
    assert (ids.shape, ids.dtype) == ((1, len(text.encode())), torch.int64)
    for tokens in (ids, ids[0], ids[0].tolist(), list(ids[0]), tuple(ids[0].tolist()), ids.int()):
        assert pair.decode(tokens) == text


def test_decode_leaves_special_tokens_out_and_takes_nothing(tokenizer, models):
    pair = Pair(*models, tokenizer)
    ids = torch.cat([pair.encode("The end"), torch.tensor([[256, 257]])], 1)
    assert pair.decode(ids) == "The end"
    assert pair.decode([]) == pair.decode(torch.empty(0, dtype=torch.int64)) == ""


@pytest.mark.parametrize(
    ("specials", "start"),
    [({"bos_token": "<|start|>", "eos_token": END}, 257), ({"eos_token": END}, 256), ({"bos_token": END}, 256)],
    ids=str,
)
def test_an_empty_text_is_the_start_token(models, specials, start):
    pair = Pair(*models, tokenizer_of(**specials))
    assert pair.encode("").tolist() == [[start]]
    assert pair.decode(pair.encode("")) == ""


def test_an_empty_text_without_a_start_token_is_refused(models):
    with pytest.raises(ValueError, match="the prompt is empty .* no start token"):
        Pair(*models, tokenizer_of()).encode("")


@pytest.mark.parametrize("text", [None, 3, ["a", "b"], b"bytes"])
def test_encode_takes_a_text(models, tokenizer, text):
    with pytest.raises(ValueError, match=f"got {type(text).__name__}"):
        Pair(*models, tokenizer).encode(text)


def test_a_long_text_is_encoded_without_a_word(models, capfd):
    short = tokenizer_of(eos_token=END, model_max_length=8)
    assert Pair(*models, short).encode("far more than eight").shape == (1, 19)
    assert capfd.readouterr().err == ""


# --- the choice ----------------------------------------------------------------------------------------

BAD_CHOICES = [
    ((None, "gpt2"), "needs a target"),
    (("gpt2", None), "needs a draft"),
    (("tiny", "huge"), "there is no 'huge'"),
    (("tiny", "distilgpt2"), "small, medium, large"),
    (("a b", "gpt2"), "'a b' is neither"),
    (("gpt2", "x//y"), "'x//y' is neither"),
    (("gpt2", "a/b/c"), "'a/b/c' is neither"),
    (("./nowhere", "gpt2"), "'./nowhere' is neither"),
    (("gpt2", "-x"), "'-x' is neither"),
    (("gpt2", ""), None),
    (("", "gpt2"), None),
]


@pytest.mark.parametrize(("names", "words"), BAD_CHOICES, ids=str)
def test_names_that_cannot_be_a_pair(names, words):
    with pytest.raises(ValueError) as error:
        refuse_choice(*names)
    assert "\n" not in str(error.value)
    assert words is None or words in str(error.value)


def test_names_that_can(tmp_path, monkeypatch):
    for names in (("gpt2", "distilgpt2"), CLASSROOM_PAIR, ("tiny", None), ("tiny", "small"), (str(tmp_path), "gpt2")):
        refuse_choice(*names)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    refuse_choice("a folder", "./a folder")


@pytest.fixture
def chosen(monkeypatch):
    """What load_pair would load, without loading it."""
    calls = []
    monkeypatch.setattr(pairs, "_tiny_pair", lambda draft, device, dtype: calls.append(("tiny", draft, device, dtype)))
    monkeypatch.setattr(pairs, "_hub_pair", lambda t, d, device, dtype: calls.append((t, d, device, dtype)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return calls


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("tiny", ("tiny", "medium")),
        ("tiny,large", ("tiny", "large")),
        (" tiny , small ", ("tiny", "small")),
        ("tiny,", ("tiny", "medium")),
        ("gpt2,distilgpt2", ("gpt2", "distilgpt2")),
        ("openai-community/gpt2-large,distilbert/distilgpt2", CLASSROOM_PAIR),
    ],
)
def test_spec_pair(chosen, monkeypatch, choice, names):
    monkeypatch.setenv("SPEC_PAIR", choice)
    load_pair()
    assert [c[:2] for c in chosen] == [names]
    load_pair("tiny", "small")  # what is asked for in the code comes first
    assert chosen[-1][:2] == ("tiny", "small")


@pytest.mark.parametrize("choice", [",", "gpt2", "tiny,huge", "a b,gpt2", "gpt2,b,c", ",gpt2", "gpt2;distilgpt2"])
def test_junk_in_spec_pair_is_refused(chosen, monkeypatch, choice):
    monkeypatch.setenv("SPEC_PAIR", choice)
    with pytest.raises(ValueError) as error:
        load_pair()
    assert "\n" not in str(error.value)
    assert "(None)" not in str(error.value)
    assert chosen == []


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_the_default_without_a_gpu_says_so_in_one_line(chosen, monkeypatch, capsys, empty):
    if empty is None:
        monkeypatch.delenv("SPEC_PAIR", raising=False)
    else:
        monkeypatch.setenv("SPEC_PAIR", empty)
    load_pair()
    assert chosen == [("tiny", "medium", torch.device("cpu"), torch.float32)]
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert "tiny" in out
    assert err == ""


def test_the_default_with_a_gpu_is_the_classroom_pair(chosen, monkeypatch, capsys):
    monkeypatch.delenv("SPEC_PAIR", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    load_pair()
    assert chosen == [(*CLASSROOM_PAIR, torch.device("cuda"), torch.float32)]
    assert capsys.readouterr().out == ""

    def unreachable(*args):
        raise OSError("Could not load openai-community/gpt2-large.")

    monkeypatch.setattr(pairs, "_hub_pair", unreachable)
    load_pair()
    assert chosen[-1][:3] == ("tiny", "medium", torch.device("cpu"))
    out = capsys.readouterr().out
    assert "embedded pair" in out
    assert out.count("\n") == 1


def test_dtypes_by_name(chosen):
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        load_pair("tiny", dtype=dtype)
        load_pair("tiny", dtype=str(dtype).removeprefix("torch."))
        assert [c[3] for c in chosen[-2:]] == [dtype, dtype]


@pytest.mark.parametrize("dtype", ["junk", "nn", "Tensor", "", "int64", "bool", torch.int8])
def test_a_dtype_that_models_cannot_have_is_refused(chosen, dtype):
    with pytest.raises(ValueError, match="dtype"):
        load_pair("tiny", dtype=dtype)
    assert chosen == []


@pytest.mark.parametrize("device", ["junk", "cuda", "cuda:0"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(chosen, device):
    with pytest.raises(ValueError) as error:
        load_pair("gpt2", "distilgpt2", device=device)
    assert "\n" not in str(error.value)
    assert device.partition(":")[0] in str(error.value)
    assert chosen == []


# --- from folders and from the hub's cache -----------------------------------------------------------------


@pytest.fixture
def folders(tmp_path, tokenizer, models):
    """A pair saved in two folders."""
    from safetensors.torch import save_file

    for name, model in zip(("target", "draft"), models, strict=True):
        tokenizer.save_pretrained(tmp_path / name)
        model.config.architectures = ["GPT2LMHeadModel"]
        model.config.save_pretrained(tmp_path / name)
        weights = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
        save_file(weights, tmp_path / name / "model.safetensors", {"format": "pt"})
    return tmp_path / "target", tmp_path / "draft"


def test_a_pair_from_folders(folders, models):
    ids = torch.tensor([[5, 6, 7]])
    for dtype in (None, "bfloat16"):
        pair = load_pair(*map(str, folders), device="cpu", dtype=dtype)
        for got, kept in zip((pair.target, pair.draft), models, strict=True):
            assert got.dtype == (torch.bfloat16 if dtype else torch.float32)
            assert not got.training
            with torch.no_grad():
                assert dtype or torch.equal(got(ids).logits, kept(ids).logits)
        assert pair.decode(pair.encode("as it was")) == "as it was"


def test_vocabularies_are_compared_before_weights_are_read(folders, tokenizer):
    for folder in folders:
        (folder / "model.safetensors").unlink()
    tokenizer_of(swap=(10, 11), eos_token=END).save_pretrained(folders[1])
    with pytest.raises(ValueError, match="id 10 "):
        load_pair(*map(str, folders))


def test_a_folder_without_a_model_is_one_sentence(folders, tmp_path):
    (folders[1] / "model.safetensors").unlink()
    (tmp_path / "empty").mkdir()
    for draft in (folders[1], tmp_path / "empty"):
        with pytest.raises(OSError) as error:
            load_pair(str(folders[0]), str(draft))
        assert str(error.value).startswith(f"Could not load {draft}: ")
        assert "\n" not in str(error.value)
        assert 'load_pair("tiny")' in str(error.value)


def hub_folder(home: Path, name: str, config: dict, prefix: str) -> None:
    """A model in the hub's cache, with random weights in 16 bit (to be small) under the names of the real files."""
    from safetensors.torch import save_file

    folder, commit = home / "hub" / f"models--{name.replace('/', '--')}", REVISIONS[name]
    files = folder / "snapshots" / commit
    files.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    (files / "config.json").write_text(json.dumps(config))
    (files / "generation_config.json").write_text('{"bos_token_id": 50256, "eos_token_id": 50256}')

    letters = byte_tokens()
    merges = [(a, b) for a in letters for b in letters][:50_000]
    vocab = {t: i for i, t in enumerate([*letters, *[a + b for a, b in merges], END])}
    (files / "vocab.json").write_text(json.dumps(vocab))
    (files / "merges.txt").write_text("#version: 0.2\n" + "\n".join(f"{a} {b}" for a, b in merges) + "\n")
    byte_bpe(vocab, merges, [END]).save(str(files / "tokenizer.json"))
    (files / "tokenizer_config.json").write_text('{"model_max_length": 1024}')

    n = config["n_embd"]
    noise = torch.randn(1 << 20, generator=torch.Generator().manual_seed(n)).mul(0.1).half()

    def random(*shape: int) -> torch.Tensor:
        size = torch.Size(shape).numel()
        return noise.repeat(size // len(noise) + 1)[:size].view(shape).clone()

    def norm(name: str) -> dict:
        return {f"{name}.weight": torch.ones(n).half(), f"{name}.bias": torch.zeros(n).half()}

    def linear(name: str, a: int, b: int) -> dict:
        return {f"{name}.weight": random(a, b), f"{name}.bias": torch.zeros(b).half()}

    weights = {"wte.weight": random(50257, n), "wpe.weight": random(1024, n), **norm("ln_f")}
    weights |= {**norm("h.0.ln_1"), **norm("h.0.ln_2"), "h.0.attn.bias": torch.ones(1, 1, 1024, 1024).tril().half()}
    weights |= {**linear("h.0.attn.c_attn", n, 3 * n), **linear("h.0.attn.c_proj", n, n)}
    weights |= {**linear("h.0.mlp.c_fc", n, 4 * n), **linear("h.0.mlp.c_proj", 4 * n, n)}
    save_file({prefix + k: v for k, v in weights.items()}, files / "model.safetensors", {"format": "pt"})


HUB_SCRIPT = """
    import socket, sys
    sys.path.insert(0, {root!r})

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
    import spec_lib as sl
    import torch

    def error_of(call, kind):
        try:
            call()
        except kind as error:
            assert chr(10) not in str(error), error
            return str(error)
        raise AssertionError("not refused")

    for names in {bad!r}:
        error_of(lambda: sl.load_pair(*names), ValueError)
    assert "transformers" not in sys.modules  # refused before anything heavy is imported

    text = error_of(lambda: sl.load_pair("openai-community/gpt2-large", "nobody/has-this"), OSError)
    assert "nobody/has-this" in text and "HF_HUB_OFFLINE" in text, text

    torch.manual_seed(7)
    before = torch.get_rng_state()
    pair = sl.load_pair("openai-community/gpt2-large", "distilbert/distilgpt2", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert pair.name == "openai-community/gpt2-large with distilbert/distilgpt2"
    assert (pair.target.config.n_embd, pair.draft.config.n_embd) == (1280, 768)
    for model in (pair.target, pair.draft):
        assert model.dtype == torch.float32 and not model.training
        assert abs(model.transformer.wte.weight.std().item() - 0.1) < 0.01  # from the file, not newly drawn (.02)
        assert abs(model.transformer.h[0].mlp.c_fc.weight.std().item() - 0.1) < 0.01
    assert len(pair.tokenizer) == 50257 and pair.tokenizer.eos_token_id == 50256
    assert pair.encode("").tolist() == [[50256]]
    ids = pair.encode("Once upon a time, naïve")
    assert ids.shape[1] < 23 and pair.decode(ids) == "Once upon a time, naïve"
    options = dict(sampling=sl.Sampling(0), eos_token_id=50256)
    plain = sl.autoregressive(pair.target, ids, 5, **options)
    for rule in ("google", "deepmind"):
        assert sl.speculative(pair.target, pair.draft, ids, 5, rule=rule, **options).ids.tolist() == plain.ids.tolist()
    print("done")
"""


def run_script(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    environment = {k: v for k, v in environment.items() if k != "HF_HUB_CACHE"}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def test_the_hub_pair_of_the_classroom_offline(tmp_path):
    target, draft = CLASSROOM_PAIR
    hub_folder(tmp_path, target, {**GPT2, "n_embd": 1280, "n_head": 20}, prefix="")
    hub_folder(tmp_path, draft, {**GPT2, "n_embd": 768, "n_head": 12}, prefix="transformer.")
    bad = [names for names, words in BAD_CHOICES if words]
    done = run_script(HUB_SCRIPT.format(root=str(ROOT), bad=bad), tmp_path, HF_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


# --- the embedded pair ---------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


def test_a_call_runs_on_one_thread_and_puts_the_setting_back(threads):
    model, seen = tiny_gpt2(0), []
    one_thread(model)
    model.lm_head.register_forward_hook(lambda *args: seen.append(torch.get_num_threads()))
    ids = torch.arange(4)[None]
    model(ids)
    model(ids).logits.sum().backward()
    assert seen == [1, 1]
    assert torch.get_num_threads() == threads
    with pytest.raises(IndexError):
        model(torch.tensor([[99]]))
    assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    model(ids)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(threads)  # the learner changes it later: that counts
    model(ids)
    assert torch.get_num_threads() == threads


TINY_SCRIPT = """
    import socket, sys
    sys.path.insert(0, {root!r})

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
    import spec_lib as sl
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    sizes = []
    for draft in ("small", "medium", "large"):
        pair = sl.load_pair("tiny", draft=draft)
        for model in (pair.target, pair.draft):
            assert model.dtype == torch.float32 and model.device.type == "cpu" and not model.training
            assert model.lm_head.weight is model.transformer.wte.weight
            assert all(p.isfinite().all() for p in model.parameters())
        sizes.append(sum(p.numel() for p in pair.draft.parameters()))
        assert draft in pair.name
    assert sizes == sorted(set(sizes))
    assert torch.equal(torch.get_rng_state(), before)

    assert {{"predictable", "open"}} <= set(pair.prompts)
    for prompt in pair.prompts.values():
        ids = pair.encode(prompt)
        assert 0 < ids.shape[1] < 64 and pair.decode(ids) == prompt
    plain = sl.autoregressive(pair.target, ids, 12, sampling=sl.Sampling(0))
    g = sl.speculative(pair.target, pair.draft, ids, 12, sampling=sl.Sampling(0))
    assert g.tokens.tolist() == plain.tokens.tolist()
    assert torch.get_num_threads() == 2
    try:
        pair.target(torch.tensor([[10**6]]))
    except IndexError:
        pass
    assert torch.get_num_threads() == 2
    print("done")
"""


@pytest.mark.skipif(not (TINY / "target" / "model.safetensors").exists(), reason="the embedded weights are not here")
def test_the_embedded_pair_needs_no_network_and_says_nothing(tmp_path):
    # From another folder, with an empty Hugging Face home and the network cut: everything is in the module.
    done = run_script(TINY_SCRIPT.format(root=str(ROOT)), tmp_path, HF_HOME=str(tmp_path / "none"), HF_HUB_OFFLINE="0")
    assert done.stderr == ""
    assert done.stdout == "done\n"
    assert not (tmp_path / "none").exists()
