"""The text that the embedded pair learns from: stories, their tokenizer, and windows cut from them."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from .shapes import CONTEXT, VOCAB

END = "<|endoftext|>"
PLAIN = 0.5  # the share of the text that the target ends with


def read_stories(path: Path) -> list[str]:
    """The file's stories: parted by three newlines, or else pieces of about 8,000 characters."""
    text = path.read_text(encoding="utf-8")
    stories = [s.strip("\n") for s in text.split("\n\n\n") if s.strip()]
    if len(stories) < 20:
        stories, piece = [], ""
        for paragraph in text.split("\n\n"):
            piece += ("\n\n" if piece else "") + paragraph.strip("\n")
            if len(piece) > 8000:
                stories.append(piece)
                piece = ""
        stories += [piece] if piece.strip() else []
    if len(stories) < 20:
        raise SystemExit(f"{path} holds {len(text):,} characters; training needs at least 160,000 (twenty stories).")
    return stories


def split(stories: list[str]) -> tuple[list[str], list[str]]:
    """(training stories, held-out stories): every twentieth story is held out."""
    return [s for i, s in enumerate(stories) if i % 20 != 10], [s for i, s in enumerate(stories) if i % 20 == 10]


def train_tokenizer(stories: list[str], folder: Path):
    """A byte-level BPE like GPT-2's, of `VOCAB` tokens; id 0 ends a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    file = folder / "tokenizer.json"
    if not file.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        trainer = trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(stories, trainer)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(file))
    return PreTrainedTokenizerFast(tokenizer_file=str(file), bos_token=END, eos_token=END, model_max_length=CONTEXT)


def to_ids(stories: list[str], tokenizer) -> list[list[int]]:
    """Each story after an end-of-text token."""
    return [
        [tokenizer.eos_token_id, *row]
        for row in tokenizer(stories, add_special_tokens=False, verbose=False)["input_ids"]
    ]


def in_a_row(stories: list[list[int]]) -> torch.Tensor:
    """(tokens,) int64"""
    return torch.tensor([i for ids in stories for i in ids])


def plain_half(stories: list[str], held: list[str], tokenizer) -> tuple[list[list[int]], list[list[int]]]:
    """The plainest stories that make up `PLAIN` of the text, and the held-out stories that are as plain, as ids."""
    ids, held_ids = to_ids(stories, tokenizer), to_ids(held, tokenizer)
    scores = plainest(ids, [len(s) for s in stories], ids)
    left, limit = PLAIN * sum(map(len, ids)), 0.0
    for score, row in sorted(zip(scores, ids, strict=True)):
        limit, left = score, left - len(row)
        if left <= 0:
            break
    held_scores = plainest(held_ids, [len(s) for s in held], ids)
    chosen = [row for score, row in zip(scores, ids, strict=True) if score <= limit]
    held_chosen = [row for score, row in zip(held_scores, held_ids, strict=True) if score <= limit]
    return chosen, held_chosen or held_ids


def plainest(stories: list[list[int]], characters: list[int], counted: list[list[int]]) -> list[float]:
    """How hard each story (as ids) is to foresee from the token before: nats a character, under counts of `counted`.

    A story is left out of its own counts, or the shortest ones would look the plainest.
    """
    single = Counter(i for ids in counted for i in ids)
    double = Counter(pair for ids in counted for pair in pairwise(ids))
    known, total, found = {id(ids) for ids in counted}, single.total(), []
    for ids, length in zip(stories, characters, strict=True):
        own = Counter(pairwise(ids)) if id(ids) in known else Counter()
        nats = 0.0
        for (a, b), times in Counter(pairwise(ids)).items():
            follows = max(double[a, b] - own[a, b], 0) / max(single[a], 1)
            nats -= times * math.log(0.7 * follows + 0.3 * (single[b] + 1) / (total + VOCAB))
        found.append(nats / length)
    return found


class Windows:
    """Windows of the text in random order, a new cut in every pass over it."""

    def __init__(self, ids: torch.Tensor, seed: int):
        self.ids, self.random, self.starts, self.length = ids, random.Random(seed), [], 0

    def take(self, rows: int, length: int) -> torch.Tensor:  # (rows, length + 1)
        if length != self.length or len(self.starts) < rows:
            first = self.random.randrange(length)
            self.starts = list(range(first, len(self.ids) - length - 1, length))
            self.random.shuffle(self.starts)
            self.length = length
            if len(self.starts) < rows:  # a text shorter than one batch
                self.starts = [self.random.randrange(len(self.ids) - length - 1) for _ in range(rows)]
        return torch.stack([self.ids[s : s + length + 1] for s in (self.starts.pop() for _ in range(rows))])
