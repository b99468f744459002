"""From logits to probabilities, and from probabilities to a token.

Derived in notebook 01.  Everything here works on any device without a host synchronisation and never
changes its inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch

from .devices import threads_for, to_device
from .numbers import as_int, described


@dataclass(frozen=True)
class Sampling:
    """How a next token is chosen; applied in this order: temperature, top-k, top-p.

    temperature: 0 takes the likeliest token (greedy); 1 leaves the model's distribution as it is; finite and >= 0.
    top_k: keep the k likeliest tokens; None or 0 keeps all.
    top_p: keep the smallest set of likeliest tokens whose mass reaches top_p, in (0, 1]; None keeps all.
    Raises ValueError for anything else.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self):
        t, k, p = self.temperature, self.top_k, self.top_p
        if isinstance(t, bool) or not isinstance(t, Real) or not (0 <= t < math.inf):
            raise ValueError(f"temperature must be a finite number of at least 0 (0 is greedy), got {t!r}")
        if k is not None and ((n := as_int(k)) is None or n < 0):
            raise ValueError(f"top_k must be a whole number of at least 1, or None for no limit, got {k!r}")
        if p is not None and (isinstance(p, bool) or not isinstance(p, Real) or not (0 < p <= 1)):
            raise ValueError(f"top_p must be above 0 and at most 1, or None for no limit, got {p!r}")

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """`probabilities(logits, self)`."""
        return probabilities(logits, self)


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The distribution from which `sampling` draws the next token.

    logits: (..., vocab), any floating dtype.  Returns (..., vocab), float32 (float64 stays float64), rows summing
    to 1, exactly 0 where sampling cannot go.  A row with a logit that is NaN or +inf, or of nothing but
    -inf, comes out with a NaN, never as a distribution.
    Notebook 01.
    """
    if not isinstance(logits, torch.Tensor) or logits.shape[-1:] in ((), (0,)) or logits.is_complex():
        raise ValueError(f"logits must be a tensor (..., vocab), of real numbers, got {described(logits)}")
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling must be a spec_lib.Sampling, as Sampling(temperature=0), got {described(sampling)}")
    x = logits if logits.dtype == torch.float64 else logits.float()  # 16 bit is too coarse for ratios
    if sampling.temperature == 0:
        one = 1 + 0 * x.amax(-1, keepdim=True)  # 1, or NaN where the row holds one
        return torch.zeros_like(x).scatter_(-1, x.argmax(-1, keepdim=True), one)
    if sampling.temperature != 1:
        # The maximum is taken off first, so that a tiny temperature gives 0 and -large, never inf - inf;
        # both ends are kept within what float32 can hold.
        x = (x - x.amax(-1, keepdim=True)) / min(max(float(sampling.temperature), 1e-30), 1e30)
    with threads_for(x):
        p = x.softmax(-1)
    if sampling.top_k and sampling.top_k < p.shape[-1]:
        values, indices = p.topk(sampling.top_k)  # exactly k, also where several tie for the last place
        p = torch.zeros_like(p).scatter_(-1, indices, values / values.sum(-1, keepdim=True))
    if sampling.top_p is not None and sampling.top_p < 1:
        values, indices = p.sort(dim=-1, descending=True, stable=True)
        before = torch.nn.functional.pad(values.cumsum(-1)[..., :-1], (1, 0))  # mass of the likelier tokens, first 0
        values = values.masked_fill(
            before >= max(float(sampling.top_p), 1e-30), 0
        )  # the token that reaches top_p stays
        p = torch.zeros_like(p).scatter_(-1, indices, values / values.sum(-1, keepdim=True))
    return p


def draw(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """One token from the distribution p by inverting its cumulative sum: the first x with u < p_0 + ... + p_x.

    p: (vocab,) floating; u: a uniform in [0, 1), 0-d or (1,).  Returns (1,) int64 on p's device.

    A token of probability 0 is never drawn, nor does u ever lie past the last token: in float32 u is at most
    1 - 2^-24, and u * total rounds below total.  A distribution with NaNs gives some token; the loops report those by
    name.
    `torch.multinomial` would take several times as long, and on a GPU a NaN makes it fail for good.
    Notebook 01.
    """
    if not isinstance(p, torch.Tensor) or p.ndim != 1 or not len(p):
        raise ValueError(f"p must be one distribution, a tensor (vocab,), got {described(p)}")
    if not isinstance(u, torch.Tensor) or u.numel() != 1:
        raise ValueError(f"u must be one uniform, a tensor as torch.rand(()) gives it, got {described(u)}")
    if p.dtype not in (torch.float32, torch.float64):
        p = p.float()  # in 16 bit the sum would stop growing, and u round up to 1
    if u.dtype != p.dtype:
        u = u.to(p.dtype).clamp(max=1 - 2**-24)  # one in float64 may round up to 1
    total = p.cumsum(-1)
    if p.is_cpu:  # it adds one after the other: where p is 0 the sum does not grow, so no token is found there
        return torch.searchsorted(total, u * total[-1:], right=True).clamp_(max=p.shape[-1] - 1)
    # A GPU adds in parallel, so that a sum may pass its predecessor's by rounding although p is 0: hence the mask.
    total.masked_fill_(p == 0, 0)
    return (total > u * total.max()).int().argmax(-1, keepdim=True)  # argmax takes the first of equals


class Randomness:
    """The random numbers of one generation: a stream of uniforms, the same on every device.

    generator: a torch.Generator, an int seed (the global random state then stays untouched), or None for torch's
    global generator.  Uniforms are drawn in blocks on the generator's device and moved once a block.
    """

    def __init__(self, generator: torch.Generator | int | None = None, device: torch.device | str = "cpu"):
        if (seed := as_int(generator)) is not None:
            if not -(2**63) <= seed < 2**64:
                raise ValueError(f"a seed must fit into 64 bits (-2^63 to 2^64 - 1), got {seed}")
            generator = torch.Generator().manual_seed(seed)
        if generator is not None and not isinstance(generator, torch.Generator):
            raise ValueError(
                "generator must be a torch.Generator, an int seed, an object with draw and uniforms, or None, got "
                f"{described(generator)}"
            )
        self.generator, self.device = generator, torch.device(device)
        self.block = torch.empty(0, device=self.device)  # drawn at once: `used` are handed out, `left` still there
        self.used = self.left = 0

    def uniforms(self, k: int, position: int | torch.Tensor) -> torch.Tensor:
        """k uniforms in [0, 1): (k,) float32.  `position` (of the first in the text) is ignored here."""
        if k > self.left:
            where = self.generator.device if self.generator is not None else "cpu"
            fresh = torch.rand(max(k, 256), generator=self.generator, device=where, dtype=torch.float32)
            self.block = to_device(fresh, self.device)
            self.used, self.left = 0, max(k, 256)
            self.singly = self.block.split(1)  # most are asked for one by one: all these views in one call
        self.left -= k
        self.used += k
        return self.singly[self.used - 1] if k == 1 else self.block[self.used - k : self.used]

    def draw(self, p: torch.Tensor, position: int | torch.Tensor) -> torch.Tensor:
        """One token from the distribution p (vocab,), for this position of the text: (1,) int64."""
        return draw(p, self.uniforms(1, position))


def as_randomness(generator, device: torch.device | str) -> Randomness:
    """`generator` itself where it already has `draw` and `uniforms`, else a `Randomness` around it."""
    made = not isinstance(generator, type)  # the class itself has both names too
    if made and hasattr(generator, "draw") and hasattr(generator, "uniforms"):
        return generator
    return Randomness(generator, device)
