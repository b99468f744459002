"""The command `export`: the embedded pair as Hugging Face folders, which transformers and vLLM load as they are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .files import save_folders, unused
from .pairs import TINY, TINY_DRAFTS, refuse_choice

# Without these, transformers draws from the 50 likeliest tokens, and other engines from a default of their own.
PLAIN_SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

CARD = """\
---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# {name}: {kind} of a course on speculative sampling

GPT-2 architecture (layers {layers}, width {width}, heads {heads}, parameters {parameters:,}), byte-level BPE of
{vocab:,} tokens, context {context:,}. It is small enough to try speculative decoding on any machine, in any engine.
{role}
It continues fairy tales, and has read nothing else; it is a base model, without a chat template.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer  # started in the folder that holds this one

tokenizer, model = (kind.from_pretrained("{name}") for kind in (AutoTokenizer, AutoModelForCausalLM))
print(tokenizer.decode(model.generate(**tokenizer("Once upon a time", return_tensors="pt"), max_new_tokens=60)[0]))
```

- **Sampling.** `generation_config.json` asks for the model's own distribution: temperature 1, no top-k, no top-p.
  For greedy decoding say so: `do_sample=False`.
- **Weights** are float32; loaded like that, the logits are those of `spec_lib.load_pair("tiny")` to the last bit.
- **Data.** Fairy tales and children's stories in the public domain, from Project Gutenberg texts, every work first
  published before 1929. The model repeats their people and their prejudices, has no plot and no memory for who is who,
  and is good for nothing but trying out decoding. How it was trained and what was measured stands in the course, in
  `spec_lib/tiny/MODEL_CARD.md`.

`python -m spec_lib export` wrote this folder.
"""
KINDS = {  # of the target, and of a draft
    True: ("the target model", "The draft models `small`, `medium` and `large` share its tokenizer."),
    False: ("a draft model", "Its target is `target`, whose tokenizer it shares and from which it was distilled."),
}


def export(args: argparse.Namespace) -> int:
    """Write the embedded target and its drafts: all of them or nothing."""
    if args.target not in (None, "tiny"):
        raise ValueError(
            f"only the embedded pair is exported, got --target {args.target}: a model of the hub or in a folder is one "
            "that other engines load by that name"
        )
    refuse_choice("tiny", args.draft)
    if not args.folder.strip():
        raise ValueError("FOLDER must name a folder, got an empty name")
    folder = unused(Path(args.folder))
    names = ("target", *([args.draft] if args.draft else TINY_DRAFTS))
    save_folders(folder, {f"{name}/{file}": x for name in names for file, x in files(name).items()})
    print("Written: " + ", ".join(str(folder / name) for name in names))
    return 0


def files(name: str) -> dict[str, str | bytes]:
    """The files of one model's folder.  name: "target" or a draft's."""
    from safetensors.torch import load_file, save

    source = TINY / name
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    # What transformers writes into every folder: engines choose their model class, and transformers its dtype, by it.
    config |= {"architectures": ["GPT2LMHeadModel"], "dtype": "float32"}
    weights = {key: x.float() for key, x in load_file(source / "model.safetensors").items()}
    tokenizer = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    # The class's name in releases of transformers old and new; the old ones' inputs for it would have one too many,
    # which GPT-2 would add to its embeddings.
    tokenizer |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    tokenizer |= {"model_input_names": ["input_ids", "attention_mask"]}
    tokenizer.pop("backend", None)
    ends = {key: config["eos_token_id"] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    kind, role = KINDS[name == "target"]
    card = CARD.format(
        name=name,
        kind=kind,
        role=role,
        layers=config["n_layer"],
        width=config["n_embd"],
        heads=config["n_head"],
        parameters=sum(x.numel() for x in weights.values()),
        vocab=config["vocab_size"],
        context=config["n_positions"],
    )
    return {
        "README.md": card,
        "config.json": text(config),
        "generation_config.json": text({**ends, **PLAIN_SAMPLING}),
        "model.safetensors": save(weights, metadata={"format": "pt"}),
        "tokenizer.json": (source / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": text(tokenizer),
    }


def text(content: dict) -> str:
    """JSON as transformers writes it."""
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
