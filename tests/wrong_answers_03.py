"""Wrong answers to the exercises of notebook 03, each with words that its checker's message must hold."""

import torch

import spec_lib as sl
from spec_lib import checks

CHECKERS = {
    "overlap": checks.check_overlap,
    "residual": checks.check_residual,
    "law_of_mismatch": checks.check_law_of_mismatch,
}


def ratio(p, q):
    return (p / q).clamp(max=1)


def rest(p, q):
    return (p - q).clamp(min=0)


def zeros(p, q):  # an epsilon below the line
    return rest(p, q) / (rest(p, q).sum(-1, keepdim=True) + 1e-9)


def even(p, q):
    total = rest(p, q).sum(-1, keepdim=True)
    return torch.where(total > 0, rest(p, q) / total, torch.full_like(p, 1 / p.shape[-1]))


def one_sum(p, q):
    total = rest(p, q).sum()
    return rest(p, q) / total if total > 0 else p


def patient(p, q):
    total = rest(p, q).sum(-1, keepdim=True)
    return torch.where(total > 1e-2, rest(p, q) / total, p)


def clamped(p, q):
    total = rest(p, q).sum(-1, keepdim=True)
    return torch.where(total > 0, rest(p, q) / total.clamp(min=1e-6), p)


def all_or_nothing(p, q):
    total = rest(p, q).sum(-1, keepdim=True)
    return rest(p, q) / total if bool((total > 0).all()) else p


def mismatch(weight, replacement=sl.residual, kept=lambda p, q, d: d * ratio(p, q)):
    return lambda p, q, d: kept(p, q, d) + weight(kept(p, q, d), p, q) * replacement(p, q)


WRONG = [
    ("overlap", lambda p, q: float((q * ratio(p, q)).sum()), "0/0 is NaN"),
    ("overlap", lambda p, q: float((p - q).abs().sum() / 2), "rejected"),
    ("overlap", lambda p, q: float(1 - (p - q).abs().sum()), "not halved"),
    ("overlap", lambda p, q: float((p * ratio(p, q)).sum()), "weighted by p"),
    ("overlap", lambda p, q: float(ratio(p, q).mean()), "averaged over the tokens"),
    ("overlap", lambda p, q: ratio(p, q).sum(), "without how often"),
    ("overlap", lambda p, q: float(p @ q), "two separate draws agree"),
    ("overlap", lambda p, q: 1 / float((p / q)[q > 0].max()), "envelope"),
    ("residual", rest, "not divided by its sum"),
    ("residual", patient, "not with a small number"),
    ("residual", clamped, "next to nothing"),
    ("residual", lambda p, q: (p - q).abs() / (p - q).abs().sum(-1, keepdim=True), "|p - q| was taken"),
    ("residual", lambda p, q: sl.residual(q, p), "swapped"),
    ("residual", lambda p, q: rest(p, q).softmax(-1), "softmax"),
    ("residual", lambda p, q: p, "this is p"),
    ("residual", lambda p, q: rest(p, q) / rest(p, q).sum(-1, keepdim=True), "0 was divided by 0"),
    ("residual", zeros, "only hidden"),
    ("residual", even, "equal chances"),
    ("residual", one_sum, "over all rows together"),
    ("residual", all_or_nothing, "row by row"),
    ("law_of_mismatch", mismatch(lambda k, p, q: 1 - k.sum(), kept=lambda p, q, d: torch.minimum(p, q)), "not used"),
    ("law_of_mismatch", mismatch(lambda k, p, q: 0), "do not sum to 1"),
    ("law_of_mismatch", lambda p, q, d: d * ratio(p, q) / (d * ratio(p, q)).sum(), "only accepted"),
    ("law_of_mismatch", mismatch(lambda k, p, q: 1), "added whole"),
    ("law_of_mismatch", mismatch(lambda k, p, q: 1 - torch.minimum(p, q).sum()), "as if guesses came from q"),
    ("law_of_mismatch", mismatch(lambda k, p, q: 1 - k.sum(), lambda p, q: p), "drawn from p"),
    (
        "law_of_mismatch",
        lambda p, q, d: d * ratio(p, d) + (1 - torch.minimum(p, d).sum()) * sl.residual(p, d),
        "where the rule has q",
    ),
    (
        "law_of_mismatch",
        lambda p, q, d: d * ratio(p, q) + (1 - (d * ratio(p, q)).sum()) * sl.residual(p, d),
        "p and `drawn`",
    ),
]
