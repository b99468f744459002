"""Many texts in one cache and one forward pass: a rectangle with a slot for each text, filled to a length of its own.

A token at position t of its text stands in column t of its slot and attends to the columns 0 to t there, whatever the
other slots hold.  So a text is rolled back by making its length smaller, which is a number on the host; what lies
beyond is overwritten before anything attends to it.  Derived in notebook 12.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import abilities, protocols
from .cache import check_fed, check_rollback
from .devices import to_device

STEP = 256  # columns by which a rectangle grows


class Rows:
    """What all rectangles share: the lengths, and where each token goes.

    model: what is read with.  lengths: the tokens that each slot holds.  fed: positions fed in all, without padding.
    """

    def __init__(self, model: protocols.Model, slots: int):
        self.model, self.lengths, self.columns, self.fed = model, [0] * slots, 0, 0

    def feed(self, first: int, ids: Sequence[torch.Tensor], keep: int | None = None) -> list[torch.Tensor]:
        """As `abilities.Rows`."""
        counts, slots = [len(x) for x in ids], range(first, first + len(ids))
        longest, end = max(counts), max(self.lengths[i] + n for i, n in zip(slots, counts, strict=True))
        if end >= self.columns:
            self._widen(-(-(end + 1) // STEP) * STEP)
        device = self.model.device
        start, count = to_device(torch.tensor([self.lengths[first : slots.stop], counts]), device)[..., None]
        step = torch.arange(longest, device=device)
        real = step < count  # (texts, longest): false where a text is padded, at its right
        at = torch.where(real, start + step, 0)  # positions in the text
        sees = torch.arange(end, device=device) <= at[..., None]  # (texts, longest, end)
        column = torch.where(real, at, self.columns - 1)  # padding goes where nobody looks
        padded = torch.nn.utils.rnn.pad_sequence(list(ids), batch_first=True)
        rows = [range(n) if keep is None else range(max(0, n - keep), n) for n in counts]
        logits = self._logits(padded, at, column, sees, slots, rows)
        for i, n in zip(slots, counts, strict=True):
            self.lengths[i] += n
        self.fed += sum(counts)
        return logits

    def move(self, source: int, to: int) -> None:
        """As `abilities.Rows`."""
        self.clear(to)
        if self.lengths[source]:
            self._copy(source, to, self.lengths[source])
        self.lengths[to] = self.lengths[source]

    def clear(self, slot: int) -> None:
        """As `abilities.Rows`."""
        self.lengths[slot] = 0
        self._zero(slot)  # a hidden column has weight 0, and 0 * NaN is NaN: what a text left must be finite


class Row:
    """One slot as the `Model` of one text.  Before it has a slot nothing can be read."""

    def __init__(self, rows: abilities.Rows):
        self.rows, self.slot, model = rows, None, rows.model
        self.vocab, self.device, self.max_length = model.vocab, model.device, model.max_length
        self.padding = getattr(model, "padding", None)

    @property
    def length(self) -> int:
        """Tokens of this text in the cache."""
        return 0 if self.slot is None else self.rows.lengths[self.slot]

    def feed(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        """As `Model.feed`, for this text alone."""
        check_fed(self, ids, keep)
        return self.rows.feed(self.slot, [ids], keep)[0]

    def rollback(self, length: int) -> None:
        """As `Model.rollback`: a number becomes smaller."""
        if self.slot is not None:
            self.rows.lengths[self.slot] = check_rollback(self, length)

    def refuse_text(self, size: int, longest: int) -> None:
        """As the model."""
        if hasattr(self.rows.model, "refuse_text"):
            self.rows.model.refuse_text(size, longest)

    def refuse_rollback(self, longest: int) -> None:
        """As the model, which could roll back a text of its own."""
        if hasattr(self.rows.model, "refuse_rollback"):
            self.rows.model.refuse_rollback(longest)
