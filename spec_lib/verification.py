"""Which drafted tokens are accepted, and from which distribution the next one comes.

Pure functions of p (target), q (draft), the drafted tokens and the uniforms: the two papers' rules, and block
verification.  Chen et al. (2302.01318) write q for the target and p for the draft; here, as in Leviathan et al.
(2211.17192), p is the target.  Derived in notebooks 03 (one token), 04 (DeepMind's loop), 05 (Google's vectors) and 11
(block verification).
"""

from __future__ import annotations

import torch

from .numbers import described


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The residual distribution: what p has beyond q, norm(max(0, p - q)).

    p, q: (..., vocab), same dtype.  Returns (..., vocab) in that dtype; p itself where nothing is left over (p = q up
    to rounding: a rejection then has probability 0, and 0/0 is avoided).  Chen et al., Eq. 4; Leviathan et al., 2.3.
    Notebook 03.
    """
    if not (isinstance(p, torch.Tensor) and isinstance(q, torch.Tensor) and p.shape[-1:] == q.shape[-1:] != ()):
        raise ValueError(
            f"p and q must be tensors (..., vocab) of one vocabulary, got {described(p)} and {described(q)}"
        )
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)


def verify_deepmind(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor):
    """Chen et al., Algorithm 2: look at one drafted token after the other, stop at the first rejection.

    p: (k + 1, vocab), the target's distribution at each drafted position and one beyond.  q: (k, vocab), those from
    which the tokens were drawn.  drafted: (k,) int64.  uniforms: (k,) in [0, 1); the paper draws each when it is
    needed, here all are given, so that both rules can be handed the same.
    Returns (n, distribution): the number of accepted tokens, an int, and the distribution (vocab,) of the token that
    follows them.
    Raises ValueError where the shapes do not fit.  Each look is a host synchronisation on a GPU.  Notebook 04.
    """
    k = _check(p, q, drafted, uniforms)
    for t in range(k):
        x = drafted[t]
        # Strictly below: a uniform can be exactly 0, and a token with p = 0 must never be accepted.
        if not uniforms[t] < torch.clamp(p[t, x] / q[t, x], max=1):
            return t, residual(p[t], q[t])  # rejected: draw from the residual distribution
    return k, p[k]  # all accepted: the bonus token's distribution is there already


def verify_google(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor):
    """Leviathan et al., Algorithm 1: all drafted tokens at once.

    Arguments and meaning as `verify_deepmind`; on a tie of a uniform with p/q this rejects too (the paper would
    accept, which matters only at p = 0).
    Returns (n, distribution): n a 0-d int64 tensor on p's device (nothing here waits for the device), and (vocab,).
    Raises ValueError where the shapes do not fit.  Notebook 05.
    """
    k = _check(p, q, drafted, uniforms)
    if k == 0:
        return torch.zeros((), dtype=torch.int64, device=p.device), p[0]
    x = drafted.unsqueeze(1)  # (k, 1): of p, too, the first k rows
    accepted = uniforms < (p.gather(1, x) / q.gather(1, x)).squeeze(1)  # (k,)
    n = accepted.cumprod(0).sum()  # accepted before the first rejection
    row = n.view(1)
    p_n, q_n = p.index_select(0, row), q.index_select(0, row.clamp(max=k - 1))  # p[n] would wait for the device
    return n, torch.where(row < k, residual(p_n, q_n), p_n).squeeze(0)  # rejected: the residual; else the bonus token's


def verify_block(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor):
    """Block verification, Sun et al. (2403.10444), Algorithm 2: the draft is accepted up to the *last* position that
    passes, so that a good token makes up for a worse one before it.

    Arguments and meaning as `verify_google`, and no wait for the device either; on average at least as many tokens are
    accepted, and no rule accepts more without changing how later tokens are drawn.
    ValueError where the shapes do not fit.  Notebook 11.
    """
    k = _check(p, q, drafted, uniforms)
    x = drafted.unsqueeze(1)
    weights = [p.new_ones(())]  # w_0 ... w_k: given the first i drafted tokens, at least i are accepted with w_i
    for ratio in (p.gather(1, x) / q.gather(1, x)).unbind():
        weights.append((weights[-1] * ratio.squeeze()).clamp(max=1))
    w = torch.stack(weights)
    # What w_i p has beyond q.  There is no draft at the last position: q is 0 there, and all of w_k p is beyond it.
    beyond = (w.unsqueeze(1) * p - torch.nn.functional.pad(q, (0, 0, 0, 1))).clamp(min=0)  # (k + 1, vocab)
    z = beyond.sum(1)
    rest = z + (1 - w)  # in this order: where w is 1, h is exactly 1
    h = torch.where(rest > 0, z / rest, 1)  # h_k is w_k
    passed = torch.nn.functional.pad(uniforms < h[1:], (1, 0), value=True)  # 0 tokens always pass
    n = (passed * torch.arange(k + 1, device=p.device)).amax()
    row = n.view(1)
    total = z.index_select(0, row)
    return n, torch.where(total > 0, beyond.index_select(0, row) / total, p.index_select(0, row)).squeeze(0)


verify_block.token_by_token = False  # positions after the first rejection count too: see `Summary.alpha`

RULES = {"google": verify_google, "deepmind": verify_deepmind, "block": verify_block}


def _check(p, q, drafted, uniforms) -> int:
    given = {"p": p, "q": q, "drafted": drafted, "uniforms": uniforms}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor) or x.ndim != (2 if name in "pq" else 1):
            shape = "(n, vocab)" if name in "pq" else "(k,)"
            raise ValueError(f"{name} must be a tensor of shape {shape}, got {described(x)}")
    if drafted.is_floating_point() or not p.is_floating_point():
        raise ValueError(f"p must be of a floating dtype and drafted of int64, got {p.dtype} and {drafted.dtype}")
    k = drafted.shape[0]
    if p.shape[0] != k + 1 or q.shape != (k, p.shape[1]) or uniforms.shape != (k,):
        raise ValueError(
            f"{k} drafted tokens need p of shape ({k + 1}, vocab), q of ({k}, vocab) and {k} uniforms, "
            f"got p {tuple(p.shape)}, q {tuple(q.shape)}, uniforms {tuple(uniforms.shape)}"
        )
    return k
