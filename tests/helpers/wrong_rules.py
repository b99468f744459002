"""Verification rules that are wrong in one named way each: seen in the wild, kept to show that the tests see them."""

from __future__ import annotations

import torch

from spec_lib.verification import residual, verify_google
from tests.helpers.right_rules import block, block_rule


def rule_of(
    accept=lambda p, q, x, u: u < p[x] / q[x],
    rejected=residual,
    finish=lambda p, q, drafted: (len(drafted), p[-1]),
):
    """A rule, token by token, from its three parts; right as it stands."""

    def rule(p, q, drafted, uniforms):
        for t, x in enumerate(drafted.tolist()):
            if not accept(p[t], q[t], x, uniforms[t]):
                return t, rejected(p[t], q[t])
        return finish(p, q, drafted)

    return rule


def _norm(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(-1, keepdim=True)


def residual_is_p(p, q):
    """Row 1: after a rejection draw from the target as if nothing had happened."""
    return p


def residual_absolute(p, q):
    """Row 2: |p - q| instead of what p has beyond q."""
    total = (p - q).abs().sum(-1, keepdim=True)
    return torch.where(total > 0, (p - q).abs() / total, p)


def residual_softmax(p, q):
    """Row 3: the clamped difference through a softmax."""
    return (p - q).clamp(min=0).softmax(-1)


def residual_unguarded(p, q):
    """Row 18: 0/0 where nothing is left over."""
    return _norm((p - q).clamp(min=0))


def _verdicts(p, q, drafted, uniforms) -> list[bool]:
    return [bool(uniforms[t] < p[t, x] / q[t, x]) for t, x in enumerate(drafted.tolist())]


def _keep(n: int, p, q):
    return n, residual(p[n], q[n]) if n < len(q) else p[n]


def seed_in_the_loop(p, q, drafted, uniforms):
    """Row 6: the generator is seeded anew before each uniform, which is then the same number for ever."""
    return verify_google(p, q, drafted, torch.full_like(uniforms, 0.8823))


def last_resampled(p, q, drafted):
    """Row 7: when all are accepted, the last one is thrown away and drawn again, and there is no bonus."""
    return (len(drafted) - 1, p[-2]) if len(drafted) else (0, p[0])


def no_bonus(p, q, drafted):
    """When all are accepted, nothing is added: the distribution stays right and each such round gives a token less."""
    if len(drafted) == 0:
        return 0, p[0]
    return len(drafted) - 1, torch.nn.functional.one_hot(drafted[-1], p.shape[1]).to(p.dtype)


def counts_all_verdicts(p, q, drafted, uniforms):
    """Row 8: as many tokens are accepted as uniforms passed, after a rejection too."""
    return _keep(sum(_verdicts(p, q, drafted, uniforms)), p, q)


def first_verdict_decides(p, q, drafted, uniforms):
    """Row 8: only the first verdict is looked at."""
    return _keep(len(drafted) if all(_verdicts(p, q, drafted, uniforms)[:1]) else 0, p, q)


def accept_if_equal(p, q, x, u):
    """Row 9 and exact-match verification: a token drawn from p happens to be x, with probability p(x)."""
    return u < p[x]


def without(p: torch.Tensor, x: int) -> torch.Tensor:
    """The distribution p, given that the token is not x."""
    rest = p.clone()
    rest[x] = 0
    return _norm(rest)


def exact_match(p, q, drafted, uniforms):
    """Accept if the target's own draw is the drafted token, else keep that draw: exact, with fewer acceptances."""
    for t, x in enumerate(drafted.tolist()):
        if not accept_if_equal(p[t], q[t], x, uniforms[t]):
            return t, without(p[t], x)
    return len(drafted), p[-1]


def accept_not_strict(p, q, x, u):
    """Row 20: a uniform of exactly 0 lets a token through that the target cannot write."""
    return u <= p[x] / q[x]


def accept_inverted(p, q, x, u):
    """The ratio upside down."""
    return u < q[x] / p[x]


def bonus_of_row_before(p, q, drafted):
    """Row 10: the bonus from the last drafted token's own distribution, not from the one after it."""
    return len(drafted), p[max(len(drafted) - 1, 0)]


def bonus_of_residual(p, q, drafted):
    """The bonus from the last position's residual, as after a rejection."""
    return len(drafted), residual(p[-1], q[-1]) if len(drafted) else p[0]


# --- block verification, wrong in one way each

block_first_failure = block_rule(accepted=lambda passes: next((i for i, p in enumerate(passes) if not p), len(passes)))
block_residual_of_p = block_rule(left=lambda w, p, q: (p - q).clamp(min=0))
block_threshold_w = block_rule(threshold=lambda w, rest: w)
block_clipped_late = block_rule(clip=lambda w: w, use=lambda w: min(1.0, w))


def block_one_uniform(p, q, drafted, uniforms):
    """One uniform for all positions."""
    return block(p, q, drafted, uniforms[:1].expand(len(drafted)))


def product_of_uniforms(p, q, drafted, uniforms):
    """The last position whose product of ratios is at least the product of its uniforms; then the usual residual.

    An engine shipped this as block verification.  It accepts more than any exact rule can.
    """
    ratios = (p[:-1].gather(1, drafted[:, None]) / q.gather(1, drafted[:, None])).squeeze(1).clamp(max=1).cumprod(0)
    passes = (uniforms.cumprod(0) <= ratios).tolist()
    return _keep(max((i for i, passed in enumerate(passes, 1) if passed), default=0), p, q)


# --- trees, wrong in one way each


def tree_rule(
    left=lambda left, q: residual(left, q),
    row=lambda i, parent: i + 1,
    order=lambda k: range(k),
    goes_on=True,
    accept=lambda p, q, x, u: u < p[x] / q[x],
):
    """A rule for trees from its parts; right as it stands."""

    def rule(p, q, drafted, uniforms, parents):
        here, rest, path = -1, p[0], torch.zeros(len(parents), dtype=torch.bool)
        for i in order(len(parents)):
            if parents[i] != here or (not goes_on and path.any()):
                continue
            if accept(rest, q[i], drafted[i], uniforms[i]):
                path[i], here, rest = True, i, p[row(i, parents[i])]
            else:
                rest = left(rest, q[i])
        return path, rest

    return rule


def tree_by_p(p, q, drafted, uniforms, parents):
    """Each sibling is judged by p as it was, the token after them drawn from what all left: rounds without update."""
    here, own, rest, path = -1, p[0], p[0], torch.zeros(len(parents), dtype=torch.bool)
    for i, parent in enumerate(parents):
        if parent != here:
            continue
        if uniforms[i] < own[drafted[i]] / q[i, drafted[i]]:
            path[i], here, own, rest = True, i, p[i + 1], p[i + 1]
        else:
            rest = residual(rest, q[i])
    return path, rest


tree_not_updated = tree_rule(left=lambda left, q: left)
tree_row_before = tree_rule(row=lambda i, parent: i)
tree_backwards = tree_rule(order=lambda k: range(k - 1, -1, -1))
tree_ratio_inverted = tree_rule(accept=lambda p, q, x, u: u < q[x] / p[x])
