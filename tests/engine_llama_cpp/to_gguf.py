"""A folder that `python -m spec_lib export` wrote, as the GGUF file that llama.cpp reads, in float32.

    python to_gguf.py hf/target target.gguf        # where gguf and safetensors are installed; it needs nothing else

llama.cpp's own convert_hf_to_gguf.py knows tokenizers by a list, and ours is not on it.  This one is for GPT-2 only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def convert(folder: Path, file: Path) -> None:
    """Write the file.  folder: a GPT-2 with tokenizer.json."""
    import numpy as np
    from gguf import MODEL_ARCH, GGUFWriter, TensorNameMap, TokenType
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    end = config["eos_token_id"]
    out = GGUFWriter(str(file), "gpt2")
    out.add_name(folder.name)
    out.add_context_length(config["n_positions"])
    out.add_embedding_length(config["n_embd"])
    out.add_feed_forward_length(4 * config["n_embd"])
    out.add_block_count(config["n_layer"])
    out.add_head_count(config["n_head"])
    out.add_layer_norm_eps(config["layer_norm_epsilon"])
    out.add_file_type(0)  # all in float32
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types([TokenType.CONTROL if i == end else TokenType.NORMAL for i in range(len(tokens))])
    out.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["merges"]])
    out.add_bos_token_id(end)
    out.add_eos_token_id(end)
    out.add_add_bos_token(False)
    names = TensorNameMap(MODEL_ARCH.GPT2, config["n_layer"])
    for key, x in load_file(folder / "model.safetensors").items():
        if ".c_" in key and key.endswith(".weight"):
            x = x.T  # GPT-2's layers hold their matrices the other way round
        out.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(x))
        if key == "transformer.wte.weight":
            out.add_tensor("output.weight", x)  # tied
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:3]))
