"""Drafters and models that are not the library's, with what the protocols ask for and no more."""

import torch

from spec_lib import CachedModel, Draft, TableModel


class Told:
    """A drafter that drafts what `guess(text)` says, and keeps the text from what it is told alone."""

    def __init__(self, guess):
        self.guess = guess

    def start(self, ids, sampling, randomness, target):
        self.text, self.asked = ids.tolist(), []
        return self

    def propose(self, k):
        self.drafted = self.guess(self.text)[:k]
        self.asked.append((k, self.drafted))
        return Draft(torch.tensor(self.drafted, dtype=torch.int64), None)

    def accept(self, n, token, tokens):
        self.text += [*self.drafted[:n], int(token)]


class Eager:
    """A drafter that does not keep to what it was asked for."""

    def __init__(self, tokens: int, rows: int | None = None, vocab: int = 31):
        self.tokens, self.rows, self.vocab = tokens, rows, vocab

    def start(self, ids, sampling, randomness, target):
        return self

    def propose(self, k):
        q = None if self.rows is None else torch.full((self.rows, self.vocab), 1 / self.vocab)
        return Draft(torch.zeros(self.tokens, dtype=torch.int64), q)

    def accept(self, n, token, tokens):
        pass


class Bare:
    """A model with only what the protocol asks for."""

    def __init__(self, table):
        self.inner = TableModel(table)
        self.vocab, self.device, self.max_length = self.inner.vocab, self.inner.device, None

    length = property(lambda self: self.inner.length)

    def feed(self, ids, keep=None):
        return self.inner.feed(ids, keep)

    def rollback(self, length):
        self.inner.rollback(length)


class Reused:
    """A model without fresh(): one cache for all texts."""

    def __init__(self, model):
        self.inside = CachedModel(model)
        self.vocab, self.device, self.max_length = self.inside.vocab, self.inside.device, self.inside.max_length
        self.feed, self.rollback = self.inside.feed, self.inside.rollback

    length = property(lambda self: self.inside.length)
