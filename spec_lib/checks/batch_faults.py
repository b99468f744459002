"""Mistakes that a batch invites, planted in an `Engine`, and what notices them.  Notebook 12."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..batch import Engine
from ..decoding import speculative
from ..records import Generation, Round
from ..sampling import Sampling

Plant = Callable[[Engine], None]


class Equal(NamedTuple):
    """How many texts of a batch are what they are alone, and of how many all rounds are."""

    texts: int
    rounds: int


def _around(rows, change: Callable) -> None:
    """change(positions, columns, seen, kept rows) -> these four, in every pass over this rectangle."""
    real = rows._logits

    def changed(ids, at, column, sees, slots, kept):
        at, column, sees, kept = change(at, column, sees, kept)
        return real(ids, at, column, sees, slots, kept)

    rows._logits = changed


def _one_position(engine: Engine) -> None:
    for rows in (engine.target, engine.draft):
        _around(rows, lambda at, column, sees, kept: (at.amax(0, keepdim=True).expand_as(at), column, sees, kept))


def _as_far_as_the_longest(engine: Engine) -> None:
    for rows in (engine.target, engine.draft):

        def change(at, column, sees, kept, rows=rows):
            last = at.masked_fill(column == rows.columns - 1, 0).amax(1)  # the last position of each text's new tokens
            beyond = torch.arange(sees.shape[-1], device=sees.device) > last[:, None, None]
            return at, column, sees | beyond, kept

        _around(rows, change)


def _last_column(engine: Engine) -> None:
    def last(at, column, sees, kept):
        return at, column, sees, [range(at.shape[1] - 1, at.shape[1])] * len(kept)

    _around(engine.draft, last)


def _not_moved(engine: Engine) -> None:
    engine.draft._copy = lambda source, to, length: None


def _first_seed(engine: Engine) -> None:
    submit, first = engine.submit, []

    def with_the_first(*given, generator=None, **options):
        first.append(generator)
        return submit(*given, generator=first[0], **options)

    engine.submit = with_the_first


BATCH_FAULTS: dict[str, Plant] = {
    "one position for all texts": _one_position,
    "every text sees as far as the longest": _as_far_as_the_longest,
    "draft: logits of the last column for all": _last_column,
    "draft: keys and values not moved": _not_moved,
    "the first text's random numbers for all": _first_seed,
}


def texts_alone(pair, prompts: Sequence[torch.Tensor], budgets: Sequence[int], sampling: Sampling) -> list[Generation]:
    """Each text by itself; its number is its seed."""
    return [
        speculative(pair.target, pair.draft, ids, new, sampling=sampling, generator=seed)
        for seed, (ids, new) in enumerate(zip(prompts, budgets, strict=True))
    ]


def in_a_batch(
    pair, alone: Sequence[Generation], sampling: Sampling, slots: int, fault: Plant = lambda engine: None
) -> Equal:
    """The texts of `texts_alone` written together, with this fault in the engine, and compared with what they were.

    A text that ends with an error of its own is not equal.
    """
    engine = Engine(pair.target, pair.draft, slots=slots)
    fault(engine)
    requests = []
    for seed, g in enumerate(alone):
        prompt = g.ids[:, : g.ids.shape[1] - len(g.tokens)]
        requests.append(engine.submit(prompt, len(g.tokens), sampling=sampling, generator=seed))
    while engine.step():
        pass
    pairs = [(request, request.generation(), g) for request, g in zip(requests, alone, strict=True)]
    texts = [r.error is None and torch.equal(made.tokens, g.tokens) for r, made, g in pairs]
    rounds = [list(map(outcome, made.rounds)) == list(map(outcome, g.rounds)) for _, made, g in pairs]
    return Equal(sum(texts), sum(rounds))


def outcome(r: Round) -> tuple:
    """What a round did, as something that can be compared."""
    return r.drafted.tolist(), r.accepted, r.token, r.origin
