"""The hub: GPT-2's configuration through the real download path, and everything that can go wrong on the way.

One process loads all pairs from a stand-in (`tests.helpers.hub`), as Hugging Face's client reads its settings when it
is imported.  Each case has an owner's name of its own there, and so its own place in the cache: first it fails, then
the hub is well again and the same call must succeed.  The tests below read what happened.
"""

import contextlib
import errno
import gc
import io
import json
import os
import re
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

WEIGHTS = "model.safetensors"
OFFER = 'the embedded pair needs no network (load_pair("tiny") or SPEC_PAIR=tiny).'
HOUR = {"Retry-After": "3600"}

# owner: (what the sentence says, what fails).  "draft" in the owner's name: the draft fails, otherwise the target.
ANSWERS = {
    "private": ("no such model (401): check the spelling; if it is private, run `hf auth login`", (401,)),
    "gated": ("you have no access to it: ask for it on http", (403,)),
    "mistyped": ("no such model (404): check the spelling", (404,)),
    "mistyped-draft": ("no such model (404): check the spelling", (404,)),
    "busy": ("too many requests from here (429): wait", (429,)),
    "busy-for-an-hour": ("too many requests from here (429): wait", (429, ".*", ".*", HOUR)),
    "busy-at-the-weights": ("too many requests from here (429): wait", (429, WEIGHTS, "GET", HOUR)),
    "busy-before-the-weights": ("too many requests from here (429): wait", (429, WEIGHTS, "HEAD", HOUR)),
    "broken": ("out of order (500): try again", (500,)),
    "down": ("out of order (503): try again", (503,)),
    "down-at-the-weights": ("out of order (503): try again", (503, WEIGHTS, "GET")),
    "down-before-the-weights": ("out of order (503): try again", (503, WEIGHTS, "HEAD")),
    "half-the-weights": ("does not answer or breaks off: check the network", ("half", WEIGHTS)),
    "half-a-tokenizer-draft": ("does not answer or breaks off: check the network", ("half", "tokenizer.json")),
    "silent": ("does not answer or breaks off: check the network", ("silence",)),
    "silent-at-the-weights": ("does not answer or breaks off: check the network", ("silence", WEIGHTS, "GET")),
    "portal": ("is not the hub: log in to this network", ("portal",)),
    "garbled-weights": ("a file of it is damaged (", ("garbage", WEIGHTS)),
    "garbled-weights-of-the-draft": ("a file of it is damaged (", ("garbage", WEIGHTS)),
    "garbled-config": ("a file of it is damaged (", ("garbage", "config.json")),
    "garbled-tokenizer": ("a file of it is damaged (", ("garbage", "tokenizer.json")),
    "no-config": ("has no config.json, so it is no model of transformers", ({"config.json": None},)),
    "no-weights": ("does not appear to have a file named", ({WEIGHTS: None},)),
    "lacks-a-layer": ("weights do not fit its config.json (transformer.h.1.", ({},)),
    "other-shapes": ("weights do not fit its config.json (transformer.wpe.weight", ({},)),
}
MACHINE = {  # what fails here rather than there
    "full-disk": "is full: free some room, or set HF_HOME to a folder on another disk",
    "read-only": "cannot be written: set HF_HOME to a folder of yours",
    "cache-is-a-file": "cannot be written: set HF_HOME to a folder of yours",
    "full-gpu": 'memory is full: close other notebooks, load in 16 bit (dtype="float16"), or choose smaller models',
    "full-gpu-draft": "memory is full: close other notebooks",
    "full-memory": "memory is full: close other notebooks",
    "no-network": "does not answer or breaks off: check the network",
    "no-proxy": "does not answer or breaks off: check the network and HTTPS_PROXY",
    "offline": "HF_HUB_OFFLINE forbids a download: unset that",
}


def in_a_process(models: Path) -> dict:
    """owner: what happened, then and at the next try.  Runs alone, before anything of Hugging Face is imported."""
    sys.path.insert(0, str(ROOT))
    from tests.helpers.hub import Hub

    hub = Hub({}).__enter__()
    os.environ["HF_ENDPOINT"] = hub.address
    import huggingface_hub
    import torch
    from huggingface_hub import constants, file_download
    from safetensors.torch import load_file, save

    import spec_lib as sl
    from spec_lib import __main__ as cli
    from tools.stamp import setup

    slept, happened = [], {}
    time.sleep = slept.append  # the hub's client waits between its tries: counted instead
    weights = {role: load_file(models / role / WEIGHTS) for role in ("target", "draft")}

    def attempt(target: str, draft: str, way=None) -> dict:
        hub.asked.clear(), slept.clear()
        result = {}
        try:
            pair = (way or sl.load_pair)(target, draft)
            if pair is not None:
                for model, prefix in ((pair.target, ""), (pair.draft, "transformer.")):
                    kept = weights["target" if prefix == "" else "draft"][prefix + "wte.weight"]
                    assert torch.equal(model.transformer.wte.weight.cpu(), kept.float())
                assert pair.tokenizer.eos_token_id == 50256 and pair.decode(pair.encode("the end")) == "the end"
        except BaseException as error:
            result = {
                "kind": type(error).__name__,
                "text": str(error),
                "led_by": repr(error.__cause__ or error.__context__),
            }
            sys.last_value = error  # as a notebook keeps it
        partial = [file.name for file in Path(constants.HF_HUB_CACHE).rglob("*.incomplete")]
        return {**result, "asked": list(hub.asked), "slept": sum(slept), "partial": partial}

    def names(owner: str) -> tuple[str, str]:
        hub.folders |= {f"{owner}/{role}": models / role for role in ("target", "draft")}
        return f"{owner}/target", f"{owner}/draft"

    def case(owner: str, way=None, around=contextlib.nullcontext) -> None:
        pair = names(owner)
        with around():
            first = attempt(*pair, way)
        hub.heal()
        happened[owner] = {"first": first, "next": attempt(*pair)}

    # All is well: twice, then without the hub.
    case("well")
    pair = sl.load_pair(*names("well"))
    g = sl.speculative(pair.target, pair.draft, pair.encode("Once upon the time"), 20, generator=1)
    happened["well"]["written"] = len(g.tokens)
    happened["well"]["configs"] = [pair.target.config.to_dict(), pair.draft.config.to_dict()]

    # The hub answers with a fault.
    lacking = {k: v for k, v in weights["target"].items() if not k.startswith("h.1.mlp")}
    other = {**weights["target"], "wpe.weight": torch.zeros(512, 16).half()}
    replaced = {"lacks-a-layer": save(lacking, {"format": "pt"}), "other-shapes": save(other, {"format": "pt"})}
    for owner, (_, (fault, *rest)) in ANSWERS.items():
        fault = {WEIGHTS: replaced[owner]} if owner in replaced else fault
        headers = rest.pop() if len(rest) == 3 else {}
        hub.fail(f"{owner}/{'draft' if 'draft' in owner else 'target'}", fault, *rest, **headers)
        case(owner)

    # What was downloaded before loads while the hub is out of order.
    hub.fail("well/target", 503), hub.fail("well/draft", "silence")
    happened["well, and down"] = attempt(*names("well"))
    hub.heal()
    # A file that went bad on the disk after it was downloaded.
    blob = next(Path(constants.HF_HUB_CACHE, "models--well--draft").glob(f"snapshots/*/{WEIGHTS}"))
    blob.resolve().write_bytes(b"x" * 10)
    happened["well, and spoilt"] = attempt(*names("well"))

    # This machine fails.
    @contextlib.contextmanager
    def patched(thing, attribute, value):
        before = getattr(thing, attribute)
        setattr(thing, attribute, value)
        try:
            yield
        finally:
            setattr(thing, attribute, before)

    class Full:
        """A file on a disk that is full, or in a process that is interrupted, after the first bytes."""

        def __init__(self, file, error):
            self.file, self.error, self.written = file, error, 0

        def write(self, content):
            self.written += self.file.write(content[:1000])
            if self.written > 500:
                raise self.error
            return len(content)

        def __getattr__(self, name):
            return getattr(self.file, name)

    def writing(error):
        get = file_download.http_get
        return lambda: patched(file_download, "http_get", lambda url, f, **o: get(url, Full(f, error), **o))

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "cache")

    @contextlib.contextmanager
    def file_as_cache():
        Path(constants.HF_HUB_CACHE, "models--cache-is-a-file--target").write_text("in the way")
        yield
        Path(constants.HF_HUB_CACHE, "models--cache-is-a-file--target").unlink()

    seen = []

    def full(role: str, kind=torch.OutOfMemoryError):
        to, layers = torch.nn.Module.to, {"target": 2, "draft": 1}[role]

        def move(model, *arguments, **options):
            if hasattr(model.config, "n_layer"):
                seen.append(weakref.ref(model))
                if model.config.n_layer == layers:
                    raise kind("out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 14 GiB")
            return to(model, *arguments, **options)

        return lambda: patched(torch.nn.Module, "to", move)

    case("full-disk", around=writing(OSError(errno.ENOSPC, "No space left on device")))
    case("interrupted", around=writing(KeyboardInterrupt()))
    case("read-only", around=lambda: patched(os, "makedirs", refuse))
    case("cache-is-a-file", around=file_as_cache)
    case("full-memory", around=full("target", MemoryError))
    case("full-gpu", around=full("target"))
    seen.clear()
    with full("draft")():
        happened["memory"] = attempt(*names("full-gpu-draft"))
    gc.collect()
    happened["memory"]["models"] = [ref() is not None for ref in seen]
    case("full-gpu-draft", around=full("draft"))

    @contextlib.contextmanager
    def proxy():
        huggingface_hub.close_session()
        with patched(os, "environ", os.environ):
            os.environ["HTTP_PROXY"] = "http://127.0.0.1:9"
            yield
            del os.environ["HTTP_PROXY"]
        huggingface_hub.close_session()

    case("no-proxy", around=proxy)
    case("offline", around=lambda: patched(constants, "HF_HUB_OFFLINE", True))
    with patched(constants, "HF_HUB_OFFLINE", True):
        happened["well, and offline"] = attempt(*names("well"))

    # The same from the command line, and from a notebook's set-up cell on a machine with a GPU.
    def command(target, draft):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(["generate", "the end", "--target", target, "--draft", draft])
        happened["command"][target] = {"code": code, "out": out.getvalue(), "err": err.getvalue()}

    happened["command"] = {}
    hub.fail("command-down/target", 503)
    attempt(*names("command-down"), command)
    hub.fail("command-garbled/draft", "garbage", WEIGHTS)
    attempt(*names("command-garbled"), command)
    with full("target")():
        attempt(*names("command-full"), command)

    @contextlib.contextmanager
    def gpu():
        with patched(torch.cuda, "is_available", lambda: True), patched(torch.cuda, "device_count", lambda: 1):
            yield

    def set_up() -> dict:
        os.environ.pop("SPEC_PAIR", None)
        out, place = io.StringIO(), {}
        with gpu(), contextlib.redirect_stdout(out):
            exec(setup("https://example.org/course", "main"), place)
        return {"out": out.getvalue(), "pair": place["pair"].name}

    names("openai-community")
    hub.folders["openai-community/gpt2-large"] = models / "target"
    hub.folders["distilbert/distilgpt2"] = models / "draft"
    hub.fail("openai-community/gpt2-large", 429)
    happened["set-up, down"] = set_up()
    hub.heal()
    hub.asked.clear()
    with full("target")():
        happened["set-up, full"] = set_up()
    happened["set-up, full"]["revisions"] = sorted(
        f.name for f in Path(constants.HF_HUB_CACHE).glob("models--*gpt2*/snapshots/*")
    )

    # No hub at all; then it is there again.
    hub.__exit__()
    huggingface_hub.close_session()  # or the connection that is open would still be answered
    pair = names("no-network")
    first, cached = attempt(*pair), attempt(*names("well"))
    folders = hub.folders
    with Hub(folders, port=hub.port) as hub:
        happened["no-network"] = {"first": first, "next": attempt(*pair)}
    happened["well, and no network"] = cached
    return happened


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    from tests.helpers.hub import write_models

    return next(iter(write_models(tmp_path_factory.mktemp("models")).values())).parent


def environment(home: Path, **more: str) -> dict[str, str]:
    ours = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    ours |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **more}
    unwanted = {"HF_TOKEN", "HF_HUB_CACHE", "HF_ENDPOINT", "SPEC_PAIR"}
    kept = {k: v for k, v in os.environ.items() if k not in unwanted and not k.lower().endswith("_proxy")}
    return {**kept, **ours}


@pytest.fixture(scope="module")
def happened(models, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("home")
    command = [sys.executable, __file__, str(models), str(folder / "happened.json")]
    done = subprocess.run(command, env=environment(folder / "home"), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "happened.json").read_text())


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and text.endswith(".") and not re.search(r"[.!?] ", text)


def test_the_pair_is_downloaded_once_and_writes(happened):
    well = happened["well"]
    assert "text" not in well["first"] and well["written"] == 20
    for name in ("target", "draft"):
        assert f"GET well/{name}/{WEIGHTS}" in well["first"]["asked"]
    assert not [a for a in well["next"]["asked"] if a.startswith("GET") and "/api" not in a]
    for config, layers in zip(well["configs"], (2, 1), strict=True):
        assert (config["vocab_size"], config["n_positions"], config["eos_token_id"]) == (50257, 1024, 50256)
        assert config["n_layer"] == layers


@pytest.mark.parametrize("trouble", ["down", "offline", "no network"])
def test_what_was_downloaded_before_loads_without_the_hub(happened, trouble):
    assert "text" not in happened[f"well, and {trouble}"]
    assert happened[f"well, and {trouble}"]["slept"] == 0


def test_a_file_that_went_bad_in_the_cache_is_downloaded_anew(happened):
    again = happened["well, and spoilt"]
    assert "text" not in again
    assert f"GET well/draft/{WEIGHTS}" in again["asked"] and f"GET well/target/{WEIGHTS}" not in again["asked"]


@pytest.mark.parametrize("owner", [*ANSWERS, *MACHINE])
def test_a_failure_is_one_sentence_and_the_next_try_succeeds(happened, owner):
    first, later = happened[owner]["first"], happened[owner]["next"]
    words = MACHINE[owner] if owner in MACHINE else ANSWERS[owner][0]
    assert first["kind"] == "OSError", first
    assert first["text"].startswith(f"Could not load {owner}/{'draft' if 'draft' in owner else 'target'}: ")
    assert words in first["text"] and first["text"].endswith(OFFER)
    assert is_one_sentence(first["text"]), first["text"]
    assert first["led_by"] == "None"  # a notebook shows one error, not a chain of them
    assert first["slept"] <= 10  # seconds that the client wanted to wait
    assert first["partial"] == [] and "text" not in later, later


def test_a_hub_that_fails_at_once_is_asked_once(happened):
    for owner in ("private", "gated", "mistyped", "busy", "busy-for-an-hour", "down", "silent", "portal"):
        assert [a for a in happened[owner]["first"]["asked"] if owner in a] == [f"HEAD {owner}/target/config.json"]


def test_weights_are_not_downloaded_for_a_draft_that_is_not_there(happened):
    assert not [a for a in happened["mistyped-draft"]["first"]["asked"] if WEIGHTS in a]


def test_an_interrupted_download_is_no_failure_and_leaves_nothing(happened):
    first, later = happened["interrupted"]["first"], happened["interrupted"]["next"]
    assert first["kind"] == "KeyboardInterrupt" and first["partial"] == []
    assert "text" not in later


def test_a_failure_does_not_hold_on_to_the_memory_of_the_models(happened):
    # A notebook keeps the last error, and with it what its frames hold: the next try would find the GPU full.
    assert happened["memory"]["kind"] == "OSError"
    assert happened["memory"]["models"] == [False, False]


def test_the_command_line_says_the_same_and_ends_with_2(happened):
    for target, words in {
        "command-down/target": "out of order (503)",
        "command-garbled/target": "Could not load command-garbled/draft: a file of it is damaged",
        "command-full/target": "memory is full",
    }.items():
        said = happened["command"][target]
        assert (said["code"], said["out"]) == (2, "")
        *bars, line, end = said["err"].split("\n")  # bars: how far the target's weights were loaded
        assert words in line and is_one_sentence(line) and end == ""
        assert all("Loading weights" in bar for bar in bars) and len(bars) <= 1 and "Traceback" not in said["err"]


@pytest.mark.parametrize("trouble, words", [("down", "(429)"), ("full", "memory is full")])
def test_a_notebook_goes_on_with_the_embedded_pair(happened, trouble, words):
    told = happened[f"set-up, {trouble}"]
    assert told["pair"].startswith("tiny")
    first, second, end = told["out"].split("\n")
    assert words in first and first.endswith("Using the embedded pair instead.")
    assert second.startswith("cpu | torch ") and end == ""


def test_the_models_of_the_course_are_those_of_their_commits(happened):
    from spec_lib.pairs import CLASSROOM_PAIR, REVISIONS

    assert happened["set-up, full"]["revisions"] == sorted(REVISIONS[name] for name in CLASSROOM_PAIR)


def test_the_command_itself(models, tmp_path):
    from tests.helpers.hub import Hub

    words = ["generate", "the end", "--max-new-tokens", "5", "--seed", "1", "-v"]
    words = [sys.executable, "-m", "spec_lib", *words, "--target", "our/target", "--draft", "our/draft"]

    def run():
        env = environment(tmp_path / "home", HF_ENDPOINT=hub.address)
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)

    with Hub({f"our/{role}": models / role for role in ("target", "draft")}) as hub:
        hub.fail("our/draft", 404)
        failed = run()
        hub.heal()
        wrote = run()
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("python -m spec_lib generate: Could not load our/draft: the hub shows you no such ")
    assert failed.stderr.count("\n") == 1
    assert wrote.returncode == 0 and wrote.stdout.startswith("the end") and "tokens per target pass" in wrote.stdout


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(in_a_process(Path(sys.argv[1]))))
    os._exit(0)  # some of the stand-in's requests never end
