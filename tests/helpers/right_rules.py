"""Verification rules that are exact and not the course's: the enumeration has to pass each of them."""

from __future__ import annotations

from spec_lib.verification import residual


def block_rule(
    clip=lambda w: min(1.0, w),
    use=lambda w: w,
    threshold=lambda w, rest: rest / (rest + 1 - w) if rest + 1 - w > 0 else 1.0,
    left=lambda w, p, q: (w * p - q).clamp(min=0),
    accepted=lambda passes: max((i for i, passed in enumerate(passes, 1) if passed), default=0),
):
    """Block verification (Sun et al. 2024, 2403.10444, Algorithm 2) from its parts; exact as it stands.

    With w_0 = 1, w_i = clip(w_{i-1} p_i(x_i) / q_i(x_i)) and the rest Z_i = sum max(0, w_i p_{i+1} - q_{i+1}),
    position i passes if its uniform is below h_i = Z_i / (Z_i + 1 - w_i), the last one below h_k = w_k.  The *last*
    position that passes says how many tokens stay; the next one comes from norm(max(0, w_n p_{n+1} - q_{n+1})).
    """

    def rule(p, q, drafted, uniforms):
        k, w = len(drafted), [1.0]
        for i, x in enumerate(drafted.tolist()):
            w.append(clip(w[-1] * float(p[i, x]) / float(q[i, x])))
        w = [use(x) for x in w]
        below = [threshold(w[i], float((w[i] * p[i] - q[i]).clamp(min=0).sum())) for i in range(1, k)] + w[k:]
        n = accepted([u < h for u, h in zip(uniforms.tolist(), below, strict=True)]) if k else 0
        if n == k:
            return n, p[k]
        rest = left(w[n], p[n], q[n])
        return n, rest / rest.sum() if rest.sum() > 0 else p[n]

    return rule


block = block_rule()


def turned(p, q, drafted, uniforms):
    """Accept if the uniform, turned round the circle by a quarter, is below p/q: exact, and not monotone in it."""
    for i, x in enumerate(drafted.tolist()):
        if not (uniforms[i] + 0.25) % 1 < p[i, x] / q[i, x]:
            return i, residual(p[i], q[i])
    return len(drafted), p[-1]


def _cuts_of_turned(p, q, drafted) -> list[list[float]]:
    ratios = [float(p[i, x] / q[i, x]) for i, x in enumerate(drafted.tolist())]
    return [[0.75, (min(r, 1.0) - 0.25) % 1] for r in ratios]


turned.cuts = _cuts_of_turned


def leaning(p, q, drafted, uniforms):
    """The papers' rule, more generous after a low uniform and stricter after a high one: exact, and monotone.

    The threshold of a position is r + d where the uniform before lay in the lower half of what it accepts, r - d in
    the upper half, with r = min(1, p/q).  So it moves with the other uniforms, and is r on average.
    """
    low = True
    for i, (x, u) in enumerate(zip(drafted.tolist(), uniforms.tolist(), strict=True)):
        r = min(1.0, float(p[i, x] / q[i, x]))
        below = r if i == 0 else r + (1 if low else -1) * min(r, 1 - r) / 2
        if not u < below:
            return i, residual(p[i], q[i])
        low = u < below / 2
    return len(drafted), p[-1]
