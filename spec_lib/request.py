"""One text of an `Engine` of `batch`: what became of it, and its end where something is wrong with it alone."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .records import Generation
from .rows import Row
from .writer import Writer


class Request:
    """One text of an `Engine`.

    ids: the prompt, (1, length).  rounds: those that are done.  stop_reason: None while it waits or is written, then
    "eos" | "length" | "cancelled" | "error".  error: what was wrong with this text alone, a ValueError without its
    traceback; None where nothing was, or where a step failed for all texts.
    """

    def __init__(self, writer: Writer, views: list[Row]):
        self.writer, self.views = writer, views  # views: its slot in the rectangles of the target and of the draft
        self.ids, self.rounds, self.error, self.stop_reason = writer.ids, [], None, None
        if not writer.left:
            self.end(writer.stop_reason)

    def attempt(self, step: Callable, *given):
        """What a step of this text returns.  None where it, or one before it, went wrong: that ends this text alone."""
        if self.error is None:
            try:
                return step(*given)
            except ValueError as error:
                self.stop_reason = "error"
                self.error = error.with_traceback(None)  # which would keep the tensors of all texts

    def settle(self, seen: list[float]) -> None:
        """A round of it is done.  seen: as in `Writer.settle`."""
        self.rounds.append(self.writer.settle(seen))
        self.stop_reason = None if self.writer.left else self.writer.stop_reason

    def end(self, reason: str) -> None:
        """Nothing follows: whoever keeps this keeps the text, and not what it was written with."""
        self.stop_reason, self.writer, self.views = reason, None, []

    def generation(self) -> Generation:
        """The text as far as it is written."""
        new = torch.tensor([t for r in self.rounds for t in r.tokens], dtype=torch.int64, device="cpu")
        whole = torch.cat([self.ids, new[None].to(self.ids.device)], 1)
        return Generation(new, whole, self.rounds, self.stop_reason)
