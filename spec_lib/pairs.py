"""Load a pair: a target and a draft that share a vocabulary.  `load_pair()` is all that a notebook needs."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from . import hub
from .architectures import check_causal, device_of
from .devices import find_device, one_thread
from .gpt2 import GPT2
from .numbers import as_int, described

TINY = Path(__file__).parent / "tiny"
TINY_DRAFTS = ("small", "medium", "large")
CLASSROOM_PAIR = ("openai-community/gpt2-large", "distilbert/distilgpt2")
# The commits of the hub on which the course was written; other models load at their newest.
REVISIONS = {
    "openai-community/gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
    "openai-community/gpt2-large": "32b71b12589c2f8d625668d2335a01cac3249519",
    "openai-community/gpt2-xl": "15ea56dee5df4983c59b2538573817e1667135e2",
    "distilbert/distilgpt2": "2290a62682d06624634c1f46a6ad5be0f47f38aa",
}
# What a model does well depends on what it read, so each pair brings its own prompts.
TINY_PROMPTS = {
    "predictable": "Once upon a time there was a king who had three",
    "open": "The old woman looked out of the window and saw",
    "dialogue": '"Who are you, and where do you come from?" asked the',
}
GPT2_PROMPTS = {
    "predictable": "The first ten letters of the alphabet are A, B, C, D,",
    "open": "The most surprising thing about the ocean is",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
}


@dataclass
class Pair:
    """Two models in memory and their tokenizer.

    target, draft: transformers causal language models; `pair.target(ids)` is an ordinary call.  Of `fast()` they are
    models of our own protocol around these, which are their `.model`.
    Raises ValueError where two tokenizers are given and an id means different things to them, where a model has fewer
    rows than the tokenizer has tokens, or where it is not causal or none of transformers.  With one tokenizer given the
    two are not compared.
    """

    target: torch.nn.Module
    draft: torch.nn.Module
    tokenizer: object
    draft_tokenizer: object = None
    name: str = "a pair in memory"
    prompts: dict[str, str] = field(default_factory=lambda: dict(GPT2_PROMPTS))

    def __post_init__(self):
        for name in ("tokenizer", "draft_tokenizer"):
            tokenizer = getattr(self, name)
            fits = callable(tokenizer) and hasattr(tokenizer, "decode")
            if not fits and (name == "tokenizer" or tokenizer is not None):
                raise ValueError(
                    f"{name} of a Pair must be a tokenizer, as AutoTokenizer.from_pretrained gives it, got "
                    f"{described(tokenizer)}"
                )
        if self.draft_tokenizer is not None:
            check_vocabulary(self.tokenizer, self.draft_tokenizer)
        for role in ("target", "draft"):
            model = inside(getattr(self, role))
            if not hasattr(model, "config"):
                raise ValueError(
                    f"the {role} of a Pair must be a transformers model or have one as its .model, got "
                    f"{described(model)}: hand a model of your own to speculative, and keep the tokenizer beside it"
                )
            rows = model.config.get_text_config().vocab_size
            if rows < len(self.tokenizer):
                raise ValueError(
                    f"the {role} knows {rows} tokens and the tokenizer has {len(self.tokenizer)}: they do not belong "
                    "together; load the tokenizer that the model was trained with."
                )
            check_causal(model, f"the {role}")

    @property
    def device(self) -> torch.device:
        """Where the target reads."""
        return device_of(inside(self.target))

    def fast(self, graphs: bool | str = False) -> Pair:
        """The same pair on our own forward pass, both models as `GPT2`.  Notebook 13.

        graphs: True for passes of fixed shapes in CUDA graphs, "eager" for fixed shapes alone, on any device.
        Raises ValueError where a model is not of GPT-2's architecture, and for CUDA graphs off CUDA.
        """
        made = {}
        for role in ("target", "draft"):
            try:
                made[role] = GPT2(inside(getattr(self, role)), graphs=graphs)
            except ValueError as error:
                raise ValueError(f"the {role}: {error}") from None
        return replace(self, **made)

    def encode(self, text: str) -> torch.Tensor:
        """Token ids (1, length) int64 on the target's device.  An empty text becomes the tokenizer's start token;
        ValueError where it has none."""
        return torch.tensor([self.token_ids(text)], dtype=torch.int64, device=self.device)

    def token_ids(self, text: str) -> list[int]:
        """The same ids as a list: no device is touched.  An end that the tokenizer put behind the text is left out."""
        if not isinstance(text, str):
            raise ValueError(f"encode takes a text, got {type(text).__name__}")
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError("the text holds bytes that are not UTF-8: type it anew, or set a UTF-8 locale.")
        ids = self.tokenizer(text, verbose=False)["input_ids"]
        if ids and ids[-1] == self.tokenizer.eos_token_id:  # some tokenizers end each text; this one is to go on
            bare = self.tokenizer(text, verbose=False, add_special_tokens=False)["input_ids"]
            ids = ids if bare and ids[-len(bare) :] == bare else ids[:-1]
        if not ids:
            start = next((i for i in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id) if i is not None), None)
            if start is None:
                raise ValueError("the prompt is empty and this tokenizer has no start token: write at least one word.")
            ids = [start]
        return ids

    def decode(self, tokens) -> str:
        """The text of token ids, (n,), (1, n), a list or one id; special tokens are left out.  ValueError for several
        texts, and for what is no id."""
        given = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        ids = list(given) if isinstance(given, (list, tuple, range)) else [given]
        ids = ids[0] if len(ids) == 1 and isinstance(ids[0], list) else ids
        if any(isinstance(i, list) for i in ids):
            raise ValueError(f"decode takes one text, (n,) or (1, n), got a batch of {len(ids)}: decode each alone.")
        wrong = [i for i in ids if as_int(i) is None or as_int(i) < 0]
        if wrong:
            hint = ": pass generation.tokens" if hasattr(wrong[0], "tokens") else ""
            raise ValueError(
                f"decode takes token ids, whole numbers from 0 on, got {type(wrong[0]).__name__}"
                f"{'' if hint else f' {wrong[0]!r}'}{hint}."
            )
        ids = [as_int(i) for i in ids]
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def inside(model) -> torch.nn.Module:
    """The transformers model inside a model of our protocol; any other as it is."""
    return model if isinstance(model, torch.nn.Module) else getattr(model, "model", model)


def ends(pair) -> list[int] | None:
    """The tokens that end a text: the tokenizer's, and all that the target's generation_config lists."""
    target = inside(pair.target)
    listed = getattr(getattr(target, "generation_config", None), "eos_token_id", None)
    listed = listed if isinstance(listed, (list, tuple)) else [listed]
    vocab = target.config.get_text_config().vocab_size
    found = {e for e in [pair.tokenizer.eos_token_id, *listed] if e is not None and 0 <= e < vocab}
    return sorted(found) or None


def check_vocabulary(a, b) -> None:
    """Raise ValueError unless every id means the same to both tokenizers, naming the first that does not.

    Same size is not same meaning: speculation would compare p and q of different words.  Rows beyond both
    vocabularies (padding of the embedding tables) are no tokens and do not matter.
    """
    for tokenizer in (a, b):
        if not hasattr(tokenizer, "get_vocab"):
            raise ValueError(f"two tokenizers are compared, got {described(tokenizer)}, which has no get_vocab")
    ours = {i: t for t, i in a.get_vocab().items()}
    theirs = {i: t for t, i in b.get_vocab().items()}
    for i in sorted(ours.keys() | theirs.keys()):
        if ours.get(i) != theirs.get(i):
            raise ValueError(
                f"the tokenizers differ: id {i} is {ours.get(i)!r} to the target and {theirs.get(i)!r} to the draft; "
                "choose a draft with the target's vocabulary."
            )
    if a.eos_token_id != b.eos_token_id:
        warnings.warn(
            f"the tokenizers end a text differently (ids {a.eos_token_id} and {b.eos_token_id}); the target's counts.",
            stacklevel=3,
        )


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Pair:
    """Load a pair of models, ready to generate.

    target, draft: hub ids or folders; target "tiny" is the embedded pair, with draft "small" | "medium" | "large".
        Nothing given: SPEC_PAIR ("tiny", "tiny,large" or "target,draft") decides, or else the GPT-2 pair of the
        classroom where there is a GPU and the hub answers, and the embedded pair otherwise, saying so in one line.
    device: default cuda where there is one, and the CPU for the embedded pair.  dtype: default float32.
    Raises ValueError for a malformed choice, OSError for models that cannot be had, each in one sentence.
    """
    if target is None and draft is None:
        choice = os.environ.get("SPEC_PAIR", "").strip()
        if choice:
            target, _, draft = (part.strip() or None for part in choice.partition(","))
            if target is None or (draft and "," in draft):
                raise ValueError(f'SPEC_PAIR must be "tiny", "tiny,DRAFT" or "TARGET,DRAFT", got {choice!r}.')
        else:
            return _default_pair(device, dtype)
    refuse_choice(target, draft)
    given = torch.float32 if dtype is None else dtype
    dtype = getattr(torch, given, None) if isinstance(given, str) else given
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype {given!r} is not one that models can have: use float32, bfloat16 or float16.")
    if target == "tiny":
        return _tiny_pair(draft or "medium", find_device(device or "cpu"), dtype)
    return _hub_pair(target, draft, find_device(device or ("cuda" if torch.cuda.is_available() else "cpu")), dtype)


def refuse_choice(target: str | None, draft: str | None) -> None:
    """Raise ValueError for names that cannot be a pair, before anything is downloaded or loaded."""
    if target is None:
        own = ", ".join(TINY_DRAFTS)
        raise ValueError(f"a draft ({draft}) needs a target: name both, or neither. Drafts of tiny: {own}.")
    if target == "tiny":
        if draft is not None and draft not in TINY_DRAFTS:
            raise ValueError(f"the embedded pair has the drafts {', '.join(TINY_DRAFTS)}; there is no {draft!r}.")
        return
    if draft is None:
        raise ValueError(
            f'the target {target} needs a draft model that shares its vocabulary: name one too (or "tiny" alone, the '
            "embedded pair)."
        )
    if draft in TINY_DRAFTS and not Path(draft).is_dir():
        raise ValueError(f"{draft} is a draft of the embedded pair, tiny: name one that shares {target}'s vocabulary.")
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    for name in (target, draft):
        if name and Path(name).expanduser().is_dir():
            continue
        if name and Path(name).expanduser().is_file():
            raise ValueError(
                f"{name!r} is a file: name the folder with the model's config.json, tokenizer and weights."
            )
        try:
            validate_repo_id(name)
        except HFValidationError:
            raise ValueError(f"{name!r} is neither a folder here nor a model id of the hub (OWNER/NAME).") from None


def _default_pair(device, dtype) -> Pair:
    if torch.cuda.is_available():
        try:
            return load_pair(*CLASSROOM_PAIR, device=device, dtype=dtype)
        except OSError as error:
            print(f"{error} Using the embedded pair instead.")
    else:
        print("No GPU here: using the embedded pair, tiny (set SPEC_PAIR to choose another).")
    return load_pair("tiny", device=device, dtype=dtype)


def _tiny_pair(draft: str, device: torch.device, dtype: torch.dtype) -> Pair:
    from transformers import PreTrainedTokenizerFast

    folder = TINY / "target"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    models = [load_gpt2(TINY / name).to(device=device, dtype=dtype).eval() for name in ("target", draft)]
    return Pair(*models, tokenizer, name=f"tiny (embedded), draft {draft}", prompts=dict(TINY_PROMPTS))


def load_gpt2(folder: Path) -> torch.nn.Module:
    """A GPT-2 on one thread from a folder, without the progress bars that `from_pretrained` writes to stderr."""
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    with torch.random.fork_rng(devices=[]):  # the random first weights must not move the caller's random state
        model = GPT2LMHeadModel(config)
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({**weights, "lm_head.weight": weights["transformer.wte.weight"]})
    one_thread(model)
    return model


def _hub_pair(target: str, draft: str, device: torch.device, dtype: torch.dtype) -> Pair:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def model(source, **options) -> torch.nn.Module:
        # transformers would fill what is missing with random numbers, and only warn
        options |= {"dtype": dtype, "output_loading_info": True, "ignore_mismatched_sizes": True}
        found, report = AutoModelForCausalLM.from_pretrained(source, **options)
        unfit = sorted(report["missing_keys"] | {key for key, *_ in report["mismatched_keys"]})
        if unfit:
            raise ValueError(f"its weights do not fit its config.json ({unfit[0]} is missing or of another shape)")
        return found.to(device).eval()

    def tokenizer(source, **options):
        found = AutoTokenizer.from_pretrained(source, **options)
        files = [Path(source, file) for file in ("tokenizer.json", *found.vocab_files_names.values())]
        if Path(source).is_dir() and len(files) > 1 and not any(file.is_file() for file in files):
            raise ValueError(hub.NO_TOKENIZER)  # it was made without a vocabulary
        return found

    names = dict.fromkeys((target, draft))  # one, where a model is its own draft model: it is loaded once
    tokenizers = {name: hub.load(name, tokenizer, REVISIONS.get(name), tokenizer=True) for name in names}
    check_vocabulary(tokenizers[target], tokenizers[draft])  # before the weights, which may be gigabytes
    models = {name: hub.load(name, model, REVISIONS.get(name)) for name in names}
    both = [found[name] for found in (models, tokenizers) for name in (target, draft)]
    return Pair(*both, name=f"{target} with {draft}")
