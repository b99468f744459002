"""Loading a model from the Hugging Face hub or a folder: whatever goes wrong is said in one sentence, and soon."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

OFFER = 'the embedded pair needs no network (load_pair("tiny") or SPEC_PAIR=tiny)'
NO_TOKENIZER = "Couldn't instantiate the backend tokenizer"  # how transformers' sentence about it begins
# Kinds of errors, by the names of their classes: some are of libraries that differ between versions.
MEMORY = {"OutOfMemoryError", "MemoryError"}
NETWORK = {"TransportError"}  # of httpx: no connection, no answer in time, an answer that breaks off
DAMAGED = {"SafetensorError", "JSONDecodeError", "UnicodeDecodeError", "UnpicklingError", "EOFError"}


def load(name: str, loader: Callable, revision: str | None = None, tokenizer: bool = False):
    """loader(hub id or folder, **options), with the options of transformers' `from_pretrained`.

    tokenizer: that is what it loads, not a model.

    A hub that fails is not asked again and again, and what was downloaded before then loads without it.  A damaged
    file in the cache is downloaded anew, once.  Raises OSError in one sentence, which says what to do.
    """
    folder, unheard, options = Path(name).expanduser(), None, {}
    if folder.is_dir():
        lacking = missing(folder)
        if lacking:
            raise OSError(f"Could not load {name}: {lacking}; {OFFER}.")
    else:
        unheard = ask(name, revision)
        options = {"revision": revision, "local_files_only": unheard is not None}
    try:
        return _once(loader, name if options else folder, options)
    except Exception as error:  # of many libraries, each with kinds of its own
        reason = why(error, name, tokenizer) or unheard or first_sentence(error)
        again = bool(options) and unheard is None and bool(_kinds(error) & DAMAGED)
    # From here on `error` is gone, and the half-loaded model that its traceback held: its memory is free for the next.
    if again:  # the hub's client takes what is in its cache for good, so the same file would fail for ever
        try:
            return _once(loader, name, {**options, "force_download": True})
        except Exception as error:
            reason = why(error, name, tokenizer) or first_sentence(error)
    raise OSError(f"Could not load {name}: {reason}; {OFFER}.")


def ask(name: str, revision: str | None) -> str | None:
    """Ask the hub for this model, once and briefly: None where it has it, or else what is wrong.

    Its client repeats a failed request for many minutes; whoever waits for a lesson to begin wants to know at once.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, is_offline_mode

    if is_offline_mode():
        return "it is not in the cache and HF_HUB_OFFLINE forbids a download: unset that, or choose a model you have"
    try:
        found = get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision))
    except Exception as error:
        if "EntryNotFoundError" in _kinds(error):
            return "it has no config.json, so it is no model of transformers: choose another"
        return why(error, name) or first_sentence(error)
    if found.commit_hash is None:  # some networks answer everything with a page to log in on
        return f"what answers at {constants.ENDPOINT} is not the hub: log in to this network with a browser first"
    return None


def missing(folder: Path) -> str | None:
    """What a folder lacks to be a model of transformers, and what to do; None where it has a config.json."""
    inside = sorted(folder.iterdir())
    names, models = [path.name for path in inside], [path.name for path in inside if (path / "config.json").is_file()]
    if "config.json" in names:
        return None
    if not names:
        return "the folder is empty: name the one that save_pretrained wrote"
    if models:
        return f"it has no config.json, but {models[0]} in it has one: name that folder"
    if "adapter_config.json" in names:
        return "it holds an adapter, which is no model by itself: merge it into its base model and save that one"
    if any(name.endswith(".gguf") for name in names):
        return "it holds a GGUF file, which is for other programs: download the model in transformers' own format"
    return "it has no config.json: name the folder that save_pretrained wrote"


def why(error: BaseException, name: str, tokenizer: bool = False) -> str | None:
    """What went wrong and what to do, where that is known."""
    from huggingface_hub import constants

    kinds = _kinds(error)
    numbers = {e.errno for e in _chain(error) if isinstance(e, OSError)}
    answers = [e.response for e in _chain(error) if getattr(e, "response", None) is not None]
    status = answers[0].status_code if answers and "EntryNotFoundError" not in kinds else None
    cache = f"the cache folder ({constants.HF_HUB_CACHE})"
    if out_of_memory(error):
        return 'memory is full: close other notebooks, load in 16 bit (dtype="float16"), or choose smaller models'
    if numbers & {errno.ENOSPC, errno.EDQUOT}:
        return f"the disk with {cache} is full: free some room, or set HF_HOME to a folder on another disk"
    if numbers & {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR}:
        return f"{cache} cannot be written: set HF_HOME to a folder of yours"
    if "GatedRepoError" in kinds or status == 403:
        return f"you have no access to it: ask for it on {constants.ENDPOINT}/{name}, then run `hf auth login`"
    if status in (401, 404):
        return f"the hub shows you no such model ({status}): check the spelling; if it is private, run `hf auth login`"
    if status == 429:
        return "the hub has had too many requests from here (429): wait five minutes and try again"
    if status is not None and status >= 400:
        return f"the hub is out of order ({status}): try again in some minutes"
    if kinds & NETWORK:
        return f"{constants.ENDPOINT} does not answer or breaks off: check the network and HTTPS_PROXY, and try again"
    said = " ".join(str(e) for e in _chain(error))
    if "Unrecognized model in" in said or "does not recognize this architecture" in said:
        return (
            "its config.json names no kind of model that this transformers knows: update transformers, or choose "
            "another model"
        )
    if "no file named" in said and not tokenizer:
        return "it has no weights (model.safetensors): copy them into it, or save the model anew"
    if tokenizer and Path(name).expanduser().is_dir():
        if unread := _unread_config(Path(name).expanduser()):  # a tokenizer's loader reads it too, and fails by it
            return f"its config.json cannot be read ({unread}): copy it anew, or save the model anew"
        wrong = (
            "it has no tokenizer" if NO_TOKENIZER in said else f"its tokenizer cannot be read ({first_sentence(error)})"
        )
        return (
            f"{wrong}: copy tokenizer.json and its like from the model it was trained with, or write them with "
            "tokenizer.save_pretrained"
        )
    if kinds & DAMAGED:
        return (
            f"a file of it is damaged ({first_sentence(error)}): try again with the network on, or copy the folder anew"
        )
    return None


def _unread_config(folder: Path) -> str | None:
    """What transformers says of a folder's config.json, None where it can read it."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(folder)
    except Exception as error:  # of several libraries
        return first_sentence(error)
    return None


def out_of_memory(error: BaseException) -> bool:
    """Whether a GPU's memory or the machine's was full; a CPU's allocator says so in a RuntimeError."""
    words = [str(e) for e in _chain(error)]
    return bool(_kinds(error) & MEMORY) or any("can't allocate memory" in w or "out of memory" in w for w in words)


def first_sentence(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].split(". ")[0].rstrip(".:") or type(error).__name__


def _once(loader: Callable, source: str | Path, options: dict):
    from huggingface_hub import get_session

    hooks = get_session().event_hooks["response"]
    hooks.append(_do_not_wait)
    try:
        return loader(source, **options)
    finally:
        hooks.remove(_do_not_wait)


def _do_not_wait(response) -> None:
    """A hub that is busy or out of order: its client would sleep for minutes, or take a file for missing."""
    if response.status_code == 429 or response.status_code >= 500:
        response.raise_for_status()


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and those that led to it, since each library wraps what it met."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for e in _chain(error) for kind in type(e).__mro__}
