"""Prompt lookup: what followed the last few tokens at their last occurrence in this text.  Derived in notebook 10."""

from __future__ import annotations

import torch

from .. import protocols
from ..numbers import at_least_one
from ..protocols import Draft
from ..sampling import Sampling


class NGram:
    """A drafter that copies: the tokens after the latest earlier occurrence of the text's end (Saxena 2023: the first).

    longest, shortest: how many tokens at the end must occur earlier; the longest match is tried first.
    Its drafts are certain (q is None): a token x is accepted with probability p(x).
    ValueError unless 1 <= shortest <= longest.
    """

    def __init__(self, longest: int = 3, shortest: int = 1):
        self.longest, self.shortest = at_least_one("longest", longest), at_least_one("shortest", shortest)
        if self.shortest > self.longest:
            raise ValueError(f"the shortest match, {shortest} tokens, is longer than the longest, {longest}")

    def start(
        self, ids: torch.Tensor, sampling: Sampling, randomness: protocols.Randomness, target: protocols.Model
    ) -> NGramSession:
        """A session on the text ids (length,)."""
        session = NGramSession(range(self.longest, self.shortest - 1, -1))
        session.read(ids.tolist())
        return session


class NGramSession:
    """One text, and where each of its n-grams was last followed by a token."""

    def __init__(self, sizes: range):
        self.sizes, self.text = sizes, []
        self.after: dict[tuple[int, ...], int] = {}  # n-gram: index of the token that followed it last

    def read(self, tokens: list[int]) -> None:
        """The text goes on with these.  The end of the text is no match for itself: nothing follows it yet."""
        for token in tokens:
            for n in self.sizes:
                if n <= len(self.text):
                    self.after[tuple(self.text[-n:])] = len(self.text)
            self.text.append(token)

    def propose(self, k: int) -> Draft:
        """k tokens from the earlier occurrence on, or none where there is none."""
        start = next((at for n in self.sizes if (at := self.after.get(tuple(self.text[-n:]))) is not None), None)
        drafted: list[int] = []
        if start is not None:
            for at in range(start, start + k):  # the copy may reach the end of the text: then it copies itself
                drafted.append(self.text[at] if at < len(self.text) else drafted[at - len(self.text)])
        return Draft(torch.tensor(drafted, dtype=torch.int64), None)

    def accept(self, n: int, token: torch.Tensor, tokens: list[int]) -> None:
        """The text goes on with what was accepted and added."""
        self.read(tokens)
