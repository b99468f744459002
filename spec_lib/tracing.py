"""What a round keeps where it is asked to: distributions, overlap, what the caches held.  The text stays the same."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch

from . import protocols
from .records import CacheLengths, Round

_NOTHING = contextlib.nullcontext()


class Tracer:
    """The traced parts of one text's rounds.  parts: some of "distributions", "overlap", "caches"."""

    def __init__(self, parts: frozenset[str], target: protocols.Model):
        self.parts, self.target = parts, target

    def begin(self, session: protocols.Session) -> None:
        """A round begins: note what the caches hold."""
        self.session = session
        self.before = self._lengths()

    def around_rollback(self, done: Round, p: torch.Tensor, q: torch.Tensor, uniforms: torch.Tensor):
        """A context for the rollback of a round: what can be seen only before it, and what only after it."""
        return self._kept(done, p, q, uniforms) if self.parts else _NOTHING

    @contextlib.contextmanager
    def _kept(self, done: Round, p: torch.Tensor, q: torch.Tensor, uniforms: torch.Tensor) -> Iterator[None]:
        filled = self._lengths()
        if "overlap" in self.parts and done.parents is None:  # in a tree several candidates share a position
            k, session = len(q), self.session
            ahead = session.look_ahead() if hasattr(session, "look_ahead") else None
            beyond = p.new_full((1,), math.nan) if ahead is None else torch.minimum(p[k], ahead).sum().view(1)
            done.overlap = torch.cat([torch.minimum(p[:k], q).sum(-1), beyond]).cpu()
        if "distributions" in self.parts:
            # Copies also where all is on the CPU: a drafter or a source of randomness may refill its own buffer.
            done.p, done.q, done.uniforms = (
                t.to("cpu", copy=True) if isinstance(t, torch.Tensor) else t for t in (p, q, uniforms)
            )
        yield
        held = zip(self.before, filled, self._lengths(), strict=True)
        done.target_cache, done.draft_cache = (None if n[0] is None else CacheLengths(*n) for n in held)

    def _lengths(self) -> tuple[int | None, int | None]:
        if "caches" not in self.parts:
            return None, None
        return self.target.length, getattr(self.session, "length", None)
