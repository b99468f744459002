"""Tokenizers without a download: real ones of bytes, and stand-ins whose tokens are letters, bytes, digits or words."""

import torch

END = "<|endoftext|>"


def byte_tokens() -> list[str]:
    """The 256 letters with which byte-level BPE writes bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def byte_bpe(vocab: dict[str, int], merges: list[tuple[str, str]], specials: list[str]):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.BPE(vocab, merges))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return core


def tokenizer_of(swap: tuple[int, int] | None = None, extra: int = 0, **specials):
    """One token a byte, then END and other special tokens."""
    from transformers import PreTrainedTokenizerFast

    tokens = byte_tokens()
    if swap:
        i, j = swap
        tokens[i], tokens[j] = tokens[j], tokens[i]
    names = [END, "<|start|>", *[f"<|extra{i}|>" for i in range(extra)]]
    core = byte_bpe({t: i for i, t in enumerate(tokens)}, [], names)
    return PreTrainedTokenizerFast(tokenizer_object=core, **specials)


def byte_fallback(merged: tuple[str, ...] = ("on", "ce")):
    """A tokenizer as Llama's: a blank in front, and a token a byte for each character that it does not know."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    names = [
        "<unk>",
        "<s>",
        "</s>",
        *[f"<0x{i:02X}>" for i in range(256)],
        *"\u2581abcdefghijklmnopqrstuvwxyz",
        *merged,
    ]
    merges = [(m[0], m[1]) for m in merged]
    core = Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, merges, byte_fallback=True, unk_token="<unk>"))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


class Letters:
    """A pair whose tokens are letters."""

    def decode(self, tokens) -> str:
        ids = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else tokens
        return "".join("<a b"[i] for i in ids)


class Bytes:
    """A pair whose tokens are bytes: every character beyond ASCII is split."""

    def decode(self, tokens) -> str:
        ids = tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else tokens
        return bytes(ids).decode("utf-8", "replace")


class Words:
    """A tokenizer of numbers, enough for a pair."""

    eos_token_id = bos_token_id = None

    def __init__(self, size: int = 31):
        self.size = size

    def __len__(self):
        return self.size

    def __call__(self, text, **_):
        return {"input_ids": [int(x) for x in text.split()]}

    def decode(self, ids, **_):
        return " ".join(str(int(i)) for i in torch.as_tensor(ids).flatten())


class Numbers:
    """A tokenizer whose tokens are numbers; 30 is a special token, which is not shown."""

    bos_token_id, eos_token_id = None, 30

    def __len__(self):
        return 31

    def __call__(self, text, **_):
        return {"input_ids": [int(x) for x in text.split()]}

    def decode(self, ids, **_):
        return "".join(f" {i}" for i in ids if i != 30)
