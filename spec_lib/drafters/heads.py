"""Small networks that read the target's hidden state and guess what comes after the next token.  Notebook 10.

When a round begins, the text ends in a token that the target has drawn and not read.  The freshest state h is the one
from which it was drawn, so the first drafted token lies *two* after what h has seen.
"""

from __future__ import annotations

import torch
from torch.nn.functional import gelu, linear, silu

from .. import protocols
from ..devices import threads_of
from ..numbers import at_least_one, described
from ..protocols import Draft
from ..sampling import Sampling


class _OnHiddenStates(torch.nn.Module):
    """What all kinds share: the target's embedding and head, which they use and do not train."""

    ahead = 1  # tokens between those that a state has seen and the first one that is guessed from it

    def __init__(self, target: torch.nn.Module):
        super().__init__()
        target = target if isinstance(target, torch.nn.Module) else getattr(target, "model", target)
        if not hasattr(target, "get_output_embeddings"):
            raise ValueError(f"a head is made for a transformers model, or a Model around one, got {described(target)}")
        embedding, head = target.get_input_embeddings(), target.get_output_embeddings()
        bias = getattr(head, "bias", None)
        self.target = (embedding.weight.detach(), head.weight.detach(), None if bias is None else bias.detach())
        self.vocab, self.width = self.target[1].shape
        # As the embedded target's own passes, on one thread: see `devices.one_thread`.
        self.threads = threads_of(target)

    @property
    def dtype(self) -> torch.dtype:
        """In which it computes, whatever the target's."""
        return next(self.parameters()).dtype

    def refuse(self, target: protocols.Model, longest: int) -> None:
        """ValueError for a target that shows no hidden states, or others than this head was made for."""
        if not hasattr(target, "keep_hidden"):
            raise ValueError(f"a head needs hidden states, and a {type(target).__name__} does not show them")
        theirs = getattr(target, "model", None)
        head = theirs.get_output_embeddings().weight if hasattr(theirs, "get_output_embeddings") else None
        if head is None or not (head.data_ptr() == self.target[1].data_ptr() or _same(head, self.target[1])):
            raise ValueError("this head was made for another target: make it with the model that will verify")
        if (here := next(self.parameters()).device) != self.target[1].device:
            raise ValueError(f"the target is on {self.target[1].device} and the head on {here}: move the head")

    def start(
        self, ids: torch.Tensor, sampling: Sampling, randomness: protocols.Randomness, target: protocols.Model
    ) -> HeadSession:
        """A session on the text ids (length,).  It reads no prompt: the target's states are all that it needs."""
        target.keep_hidden()
        return HeadSession(self, ids, sampling, randomness, target)

    def score(self, x: torch.Tensor) -> torch.Tensor:
        """The target's own head: states after its last norm (n, width) to logits (n, vocab)."""
        _, weight, bias = self.target
        return linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)


class Heads(_OnHiddenStates):
    """One head for each of the next positions, independent of each other (Medusa, Cai et al., 2401.10774).

    target: a transformers model, or a Model around one.  count: positions, and so the most tokens of a draft.  tied:
    all use the target's output matrix; else each has its own.  certain: draft each head's likeliest token as certain
    (q is None), else draw it from the head's distribution.
    Head j computes out(h + silu(W_j h)).  It sees neither the text's last token nor the drafted ones before its own.
    """

    def __init__(self, target: torch.nn.Module, count: int = 4, tied: bool = False, certain: bool = False):
        super().__init__(target)
        self.count, self.certain = at_least_one("count", count), certain
        like = {"device": self.target[1].device, "dtype": torch.float32}
        self.mix = torch.nn.ModuleList(torch.nn.Linear(self.width, self.width, **like) for _ in range(count))
        out = [] if tied else [torch.nn.Linear(self.width, self.vocab, bias=False, **like) for _ in range(count)]
        self.out = torch.nn.ModuleList(out)
        for one in self.mix:
            torch.nn.init.zeros_(one.weight)
            torch.nn.init.zeros_(one.bias)
        for one in self.out:
            one.weight.data.copy_(self.target[1])

    def forward(self, h: torch.Tensor, tokens: torch.Tensor) -> list[torch.Tensor]:
        """For training: logits (n, vocab) for each position.  h: (n, width); tokens (n, positions) are ignored."""
        return [self.at(i, h) for i in range(min(self.count, tokens.shape[1]))]

    def at(self, i: int, h: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocab) of position i."""
        x = h + silu(self.mix[i](h))
        return self.out[i](x) if len(self.out) else self.score(x)

    def draft(self, h: torch.Tensor, last: torch.Tensor, k: int, choose) -> None:
        """choose(logits (vocab,)) for each of at most k positions."""
        for i in range(min(k, self.count)):
            choose(self.at(i, h)[0])


class _WithMLP(_OnHiddenStates):
    """What the two below share: an MLP with a norm before it and one after.  It reads `read` vectors of a state's width
    and has a hidden layer of width `inner`."""

    read = 1

    def __init__(self, target: torch.nn.Module, inner: int = 576):
        super().__init__(target)
        inner = at_least_one("inner", inner)
        like = {"device": self.target[1].device, "dtype": torch.float32}
        self.norm, self.norm_out = (torch.nn.LayerNorm(self.width, **like) for _ in range(2))
        self.up = torch.nn.Linear(self.read * self.width, inner, **like)
        self.down = torch.nn.Linear(inner, self.width, **like)


class RecurrentHead(_WithMLP):
    """A cell that takes a state and a token to the next state (as EAGLE, 2401.15077, without its attention).

    target: as in `Heads`.  inner: width of its hidden layer.
    cell(s, e) = skip * s + W_down gelu(W_up [norm(s), 10 e]), e the target's embedding of the token; the draft's
    logits are the target's head on norm_out(s).  It is started with h and the text's last token, and then reads its own
    drafted tokens.
    """

    certain, read = False, 2

    def __init__(self, target: torch.nn.Module, inner: int = 576):
        super().__init__(target, inner)
        self.skip = torch.nn.Parameter(torch.ones_like(self.norm.weight))

    def step(self, s: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """States (n, width) and the tokens (n,) that follow them, to the states after these tokens."""
        e = 10 * self.target[0][tokens].to(s.dtype)
        return self.skip * s + self.down(gelu(self.up(torch.cat([self.norm(s), e], -1)), approximate="tanh"))

    def logits(self, s: torch.Tensor) -> torch.Tensor:
        """(n, vocab) of states (n, width)."""
        return self.score(self.norm_out(s))

    def forward(self, h: torch.Tensor, tokens: torch.Tensor) -> list[torch.Tensor]:
        """For training: logits (n, vocab) after each of tokens (n, positions), which follow the states h (n, width)."""
        found, s = [], h
        for x in tokens.unbind(1):
            s = self.step(s, x)
            found.append(self.logits(s))
        return found

    def draft(self, h: torch.Tensor, last: torch.Tensor, k: int, choose) -> None:
        """choose(logits (vocab,)) for each of k positions; it returns the token (1,) that was chosen."""
        s, x = h, last
        for _ in range(k):
            s = self.step(s, x)
            x = choose(self.logits(s)[0])


class ExitHead(_WithMLP):
    """For `EarlyExit`: from a state in the middle of the target to logits, by an MLP and a norm of its own.

    target: as in `Heads`.  It is trained on the states of one layer.
    """

    ahead = 0

    def start(self, *text) -> HeadSession:
        """ValueError: by itself it drafts nothing."""
        raise ValueError("an ExitHead drafts inside an early exit: EarlyExit(layers, head)")

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """(n, vocab) of states (n, width)."""
        return self.score(self.norm_out(x + self.down(gelu(self.up(self.norm(x)), approximate="tanh"))))

    def forward(self, h: torch.Tensor, tokens: torch.Tensor) -> list[torch.Tensor]:
        """For training: logits (n, vocab) of what follows the states h (n, width); tokens are not looked at."""
        return [self.logits(h)]


class HeadSession:
    """One text, the state that its last token was drawn from, and the head."""

    def __init__(self, head, ids, sampling, randomness, target):
        self.head, self.sampling, self.randomness, self.target = head, sampling, randomness, target
        self.last, self.size, self.empty, self.row = ids[-1:], len(ids), ids[:0], -1

    @torch.no_grad()
    def propose(self, k: int) -> Draft:
        """At most k tokens; none as long as the target has read nothing."""
        tokens, distributions = [self.empty], []

        def choose(logits: torch.Tensor) -> torch.Tensor:
            q = self.sampling.probabilities(logits)
            certain = self.head.certain
            x = q.argmax(-1, keepdim=True) if certain else self.randomness.draw(q, self.size + len(distributions))
            tokens.append(x)
            distributions.append(q)
            return x

        if self.target.hidden is not None:
            state = self.target.hidden[self.row].to(self.head.dtype)[None]  # (1, width)
            self.head.draft(state, self.last, k, choose)
        q = None if self.head.certain or not distributions else torch.stack(distributions)
        return Draft(torch.cat(tokens), q)

    def accept(self, n: int, token: torch.Tensor, tokens: list[int]) -> None:
        """`token` was drawn from row n of the target's last pass."""
        self.last, self.size, self.row = token, self.size + len(tokens), n
