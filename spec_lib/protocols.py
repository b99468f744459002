"""What may be plugged into the loops, and all that they ask of it: the page to read first.

A **drafter** proposes, the target **model** scores, a **rule** decides, a source of **randomness** draws.  Whatever has
the members of a protocol below is one; nothing has to be derived from these classes, and the loops in `decoding` look
at nothing else.  Tensors are on the target's device (drafted tokens may be on any); positions count the text's tokens
from 0.  Logits have any floating dtype; p is float32, or float64 where the logits are.  No plug changes in place what
it is given.

A **distribution** over the next token is a tensor (vocab,) of probabilities that sum to 1: the target's is `p`, the
draft's `q`.  A model returns logits; `Sampling.probabilities` turns them into a distribution.

What a plug may be able to do beyond this is in `abilities`.  What it may not return is refused in a sentence
(`answers`), except what no loop can see: tokens that were not drawn from their q, a rule that is not exact, a
`rollback` that leaves something behind.  The text is then not the target's: spec_lib/README.md, "Plugging in your own",
tests it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from .sampling import Sampling


@dataclass
class Draft:
    """Proposed tokens (k,), and the distributions q (k, vocab) from which each was really drawn.

    tokens: of any integer dtype.  q: of a floating dtype of at least 16 bits, in each row probabilities that sum to 1
    (within 0.02), narrower than p or as wide; None: the drafter was certain (one-hot).  k may be 0, and smaller than
    asked.  cut: it is smaller because the drafter's context ends, so that the round says little about the drafter.
    parents: None for a chain, in which each token follows the one before.  In a tree (`trees`) the index of each
    token's parent, -1 for the end of the text; q[i] is then given the earlier siblings, too.
    """

    tokens: torch.Tensor
    q: torch.Tensor | None
    cut: bool = False
    parents: list[int] | None = None


class Model(Protocol):
    """A language model that reads one text.  `CachedModel`, `TableModel`; notebooks 01 and 06.

    length: tokens read and not rolled back.  max_length: the most that it can read, None where nothing limits it.
    vocab: the width of its logits.  A model brings its own evaluation mode and does without gradients: whoever calls a
    network of their own in `feed` wraps the call in `evaluating(network)` (`spec_lib.evaluating`).
    """

    length: int
    max_length: int | None
    vocab: int
    device: torch.device

    def feed(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        """Read ids (n,) int64, n at least 1, after those read before.  Returns logits (n, vocab), row i for the token
        after ids[i]; with `keep`, the last `keep` rows are enough.

        A target reads all of the prompt but its last token, then in each round the text's last token and the draft.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens, often all that there are; `rollback(0)` empties it.  What `feed`
        returns next is as if the others had never been read."""
        ...


class Drafter(Protocol):
    """What proposes tokens.  `ModelDrafter`; notebook 06."""

    def start(self, ids: torch.Tensor, sampling: Sampling, randomness: Randomness, target: Model) -> Session:
        """A session for a text that begins with the prompt ids (length,) int64; each text of a batch needs its own.
        sampling: the draft's own.  randomness: the text's, from which the loop draws too.  target: the model that will
        verify, with nothing read yet, and not to be fed here; its `vocab` is the width that q may have at most."""
        ...


class Session(Protocol):
    """A drafter at work on one text; all its state is here.

    In each round `propose`, then `accept`, also where nothing was drafted, and in the last one.  The text is the prompt
    and all `tokens` so far: a session that keeps no more than these has nothing to roll back.
    """

    def propose(self, k: int) -> Draft:
        """At most k tokens that may follow the text, k at least 0: fewer, or none, at any time."""
        ...

    def accept(self, n: int, token: torch.Tensor, tokens: list[int]) -> None:
        """What became of them: the first n were accepted, then `token` (1,) was added.  tokens: all of these, n + 1
        ints, so that nobody has to wait for the device again.  Where an accepted draft token ended the text, that
        is `token`, and n counts those before it.  A session whose draft had `parents` is also given `path=`, the
        indices of the n accepted ones."""
        ...


class Rule(Protocol):
    """How many drafted tokens are accepted.  `verify_google` and the others of `verification`; notebooks 03 to 05, 11.

    It is called in every round, also where nothing was drafted (k = 0), with q one-hot where the drafter was certain.
    A rule with a parameter named `position` is given, by that name, the position of the first drafted token, an int.
    One with a parameter named `parents` verifies trees, too: it is then given, by that name, the draft's, and returns a
    path (k,) bool in the place of n, as `verify_tree` does, which stands in for the rules of both papers.
    A rule with an attribute `token_by_token` that is False looks at positions after a rejection, too, so that accepted
    / (accepted + rejected) is no acceptance rate.
    """

    def __call__(
        self, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor
    ) -> tuple[int | torch.Tensor, torch.Tensor]:
        """p: (k + 1, vocab), q: (k, vocab) in the drafter's dtype, drafted: (k,) int64, uniforms: (k,) float32 or what
        the randomness hands out instead.

        Returns (n, distribution (vocab,) of the next token), 0 <= n <= k, n an int or a 0-d int64 tensor.
        """
        ...


class Randomness(Protocol):
    """Where a text's random numbers come from.  `spec_lib.Randomness` is the one that a seed is turned into."""

    def draw(self, p: torch.Tensor, position: int | torch.Tensor) -> torch.Tensor:
        """One token (1,) int64 from the distribution p (vocab,), for this position of the text, an int or 0-d int64."""
        ...

    def uniforms(self, k: int, position: int) -> torch.Tensor:
        """What the rule gets for the k tokens from this position on: for both papers' rules, (k,) in [0, 1)."""
        ...
