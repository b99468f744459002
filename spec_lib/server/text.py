"""One text on its way to a client: what of it may be sent, and what was counted.

Two things are held back: the bytes of a character that is not whole, and what may become a stop string.
"""

from __future__ import annotations

import torch

from ..plots import Pieces, origins
from ..records import Round


class Text:
    """A text that is fed the rounds of its request.

    tokens: written so far, an EOS token too, none after a stop string.  accepted, rejected: draft tokens among those
    that were verified, as `records.summarize` counts them.  finish: None while it is written, then "stop" (a stop
    string or an EOS token) or "length".
    """

    def __init__(self, pair, ids: torch.Tensor, stop: tuple[str, ...] = ()):
        self.pieces, self.stop, self.finish = Pieces(pair, ids), stop, None
        self.tokens = self.accepted = self.rejected = 0
        self.held: list[tuple[str, str]] = []

    def feed(self, round: Round, reason: str | None) -> list[tuple[str, str]]:
        """The (text, origin) that can be sent after one more round; reason: the request's stop_reason after it."""
        tokens = round.tokens
        for i, (token, origin) in enumerate(zip(tokens, origins([round]), strict=True), 1):
            self.tokens += 1
            self.accepted += origin == "accepted"
            self.rejected += origin == "resampled"
            if reason == "eos" and i == len(tokens):
                break  # it ends the text and is no part of it
            self.held += self.pieces.feed(token, origin)
            if self._stopped():
                return self._take()
        if reason is not None:
            self.held += self.pieces.end()
            if not self._stopped():
                self.finish = "length" if reason == "length" else "stop"
            return self._take()
        return self._take(self._beginning())

    def _stopped(self) -> bool:
        """Whether a stop string has been completed; then it is taken off, with all that follows it.

        Of several the one that was complete first counts, however the text falls into tokens.
        """
        text = "".join(piece for piece, _ in self.held)
        ends = [(at + len(s), at) for s in self.stop if (at := text.find(s)) >= 0]
        if ends:
            self.held, self.finish = self._take(len(text) - min(ends)[1]), "stop"
        return bool(ends)

    def _beginning(self) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        text = "".join(piece for piece, _ in self.held)
        most = max(map(len, self.stop), default=1) - 1
        starts = (n for n in range(min(most, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in self.stop))
        return next(starts, 0)

    def _take(self, keep: int = 0) -> list[tuple[str, str]]:
        """All that is held but its last `keep` characters, which stay."""
        room, taken, kept = sum(len(piece) for piece, _ in self.held) - keep, [], []
        for piece, origin in self.held:
            taken += [(piece[:room], origin)] if room > 0 else []
            kept += [(piece[max(0, room) :], origin)] if room < len(piece) else []
            room -= len(piece)
        self.held = kept
        return taken
