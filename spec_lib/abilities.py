"""Abilities that a plug may have or not, each a protocol of its own; `protocols` has what every plug must have.

They are looked for by name (`hasattr`), so that a wrapper that passes its attributes on has those of what is inside it.
One of them must then be the wrapper's own: `fresh`, or the loops go on with what is inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from .protocols import Model, Rule
from .sampling import Randomness, Sampling


class Renewable(Protocol):
    """A model that several texts may share.  Without this ability it is emptied for each text."""

    def fresh(self) -> Model:
        """The same model with nothing read."""
        ...


class Selective(Protocol):
    """A model that cannot write every text, or not always roll back: it says so in a ValueError of one sentence.

    Either method may be there without the other.
    """

    def refuse_text(self, size: int, longest: int) -> None:
        """As a target: it cannot write a text with a prompt of `size` tokens, of which `longest` are read in all."""
        ...

    def refuse_rollback(self, longest: int) -> None:
        """As a target, or as the model of a `ModelDrafter`: in a text of `longest` tokens it cannot be rolled back."""
        ...


class Padded(Protocol):
    """A model with a padding token: its id, or None.  A prompt that begins with it needs an attention_mask."""

    padding: int | None


class Coupled(Protocol):
    """A source of randomness that is exact under one rule only, its own: `SharedNoise`, notebook 11."""

    verify_coupled: Rule


class Revealing(Protocol):
    """A model that shows the hidden states which its logits were computed from.  Notebook 10."""

    hidden: torch.Tensor | None

    def keep_hidden(self) -> None:
        """From now on `hidden` (n, width) has a row for each row of the logits that the last `feed` returned."""
        ...


class Layered(Protocol):
    """A model that can stop after its first layers, on the cache that it has.  Notebook 10."""

    blocks: Sequence  # its layers

    def feed_early(self, ids: torch.Tensor, layers: int, ahead: int = 0) -> torch.Tensor:
        """Run ids (n,), the tokens at the positions length + ahead, ..., through the first layers alone: (n, width).

        The earlier ones must have been run so, too.  Nothing counts as read: a later `feed` overwrites it.
        """
        ...

    def score(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocab) of such states (n, width), by the model's last norm and its head."""
        ...


class Branching(Protocol):
    """A model that can read a tree.  Notebook 14."""

    def feed(self, ids: torch.Tensor, keep: int | None = None, parents: list[int] | None = None) -> torch.Tensor:
        """As `Model.feed`; parents: for each of ids, the row of the cache that holds the token before it.  Each sees
        its own ancestors only.  The rows stay in the order of reading; `length` counts them all."""
        ...

    def keep_rows(self, length: int, rows: list[int]) -> None:
        """Forget all but the first `length` tokens and, of those after them, the ones at these indices, ascending."""
        ...

    def refuse_tree(self) -> None:
        """ValueError, in a sentence, where it cannot."""
        ...


class Batched(Protocol):
    """A model that can read several texts in one pass.  Notebook 12."""

    def rows(self, slots: int) -> Rows:
        """A cache with room for so many texts."""
        ...


class Rows(Protocol):
    """A cache of several texts: each has a slot, and a length of its own.

    model: the model that reads, with what `Model` has beside `feed` and `rollback`.  lengths: the tokens that each slot
    holds, a list of ints; whoever makes one smaller has rolled that text back.
    """

    model: Model
    lengths: list[int]

    def feed(self, first: int, ids: Sequence[torch.Tensor], keep: int | None = None) -> list[torch.Tensor]:
        """Read ids[i] (n_i,) int64 after what slot first + i holds; n_i may be 0, not all.  Returns for each slot the
        logits (n_i, vocab), or of its last `keep` positions."""
        ...

    def move(self, source: int, to: int) -> None:
        """Copy the text in one slot into another, over what is there."""
        ...

    def clear(self, slot: int) -> None:
        """Make the slot ready for another text: length 0, and nothing left of what was there."""
        ...


class BlockDrafting(Protocol):
    """A model that drafts a whole block by itself, so that nothing comes between its passes.  Notebook 13.

    `ModelDrafter` asks where the random numbers are `spec_lib.Randomness` and the target has the model's own width.
    """

    def draft_block(
        self, unread: torch.Tensor, k: int, sampling: Sampling, randomness: Randomness
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Read `unread` (m,), draw a token, read it, and so on: tokens (k,), the last one not read, and q (k, vocab).

        Each is drawn from its row of q with one uniform, as by `draw`.  None where it cannot: then nothing was read.
        """
        ...


class Counting(Protocol):
    """A model that counts the positions fed to it, rolled back or not: the work done.

    The loops do not read it; `ModelDrafter`, the device check and notebook 06 do.
    """

    fed: int


class SelectiveDrafter(Protocol):
    """A drafter that cannot work for every text or every target."""

    def refuse(self, target: Model, longest: int) -> None:
        """ValueError, in a sentence, where it cannot draft for this target in a text of `longest` tokens."""
        ...


class Branched(Protocol):
    """A drafter of trees: what cannot verify or read them is refused before the text is read."""

    branches: bool


class Measured(Protocol):
    """A session that can say how many tokens its cache holds (None: it has none); for traces."""

    length: int | None


class Foresighted(Protocol):
    """A session that can tell its q one position after its own draft; for traces of the overlap there."""

    def look_ahead(self) -> torch.Tensor | None:
        """(vocab,) in the target's width, or None where nothing was drafted or the context ends.  Called before
        `accept`; it leaves the session as it was."""
        ...
