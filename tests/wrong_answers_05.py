"""Wrong answers to the exercises of notebook 05, and the words that tell each apart."""

import torch

import spec_lib as sl
from spec_lib.checks import check_accepted_count, check_in_chens_letters, check_lenient_acceptance

CHECKERS = {
    "accepted_count": check_accepted_count,
    "lenient_acceptance": check_lenient_acceptance,
    "in_chens_letters": check_in_chens_letters,
}


def with_a_loop(mask):
    rows = mask if mask.ndim == 2 else mask[None]
    counts = []
    for row in rows:
        n = 0
        for verdict in row:
            if not verdict:
                break
            n += 1
        counts.append(n)
    return torch.tensor(counts)


def with_lists(mask):
    rows = mask.tolist() if mask.ndim == 2 else [mask.tolist()]
    return torch.tensor([(row + [False]).index(False) for row in rows])


def last_accepted(mask):
    return (mask.long() * torch.arange(1, mask.shape[-1] + 1)).amax(-1)


def padded(r, k):
    return torch.cat([r, r.new_zeros(k - len(r))])


def not_swapped(q, p, drafted, r):
    n, law = sl.verify_google(torch.cat([p, q[-1:]]), q[:-1], drafted, padded(r, len(drafted)))
    return n + 1, law


def residual_turned(q, p, drafted, r):
    n, law = sl.verify_google(q, p, drafted, padded(r, len(drafted)))
    return n + 1, law if n == len(drafted) else sl.residual(p[n], q[n])


def from_target(q, p, drafted, r):
    n, _ = sl.verify_google(q, p, drafted, padded(r, len(drafted)))
    return n + 1, q[n]


def early_bonus(q, p, drafted, r):
    n, law = sl.verify_google(q, p, drafted, padded(r, len(drafted)))
    return n + 1, law if n < len(drafted) else q[n - 1]


def front(q, p, drafted, r):
    n, law = sl.verify_google(q, p, drafted, torch.cat([r.new_zeros(len(drafted) - len(r)), r]))
    return n + 1, law


WRONG = [
    ("accepted_count", lambda m: m.sum(-1), "behind the first rejection are counted"),
    ("accepted_count", lambda m: m.long().argmin(-1), "no first False"),
    ("accepted_count", lambda m: m[..., 0] * m.shape[-1], "only the first verdict"),
    ("accepted_count", last_accepted, "up to the last accepted token"),
    (
        "accepted_count",
        lambda m: (m.long().cumprod(-1).sum(-1) + 1).clamp(max=m.shape[-1]),
        "rejected token is counted",
    ),
    ("accepted_count", lambda m: m.long().cumprod(-1).sum(), "added up"),
    ("accepted_count", lambda m: m.long().cumprod(0).sum(0), "down the columns"),
    ("accepted_count", with_a_loop, "a loop with an"),
    ("accepted_count", with_lists, "a loop with an"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(p, x * q).sum(), "min(p, l q) is summed"),
    ("lenient_acceptance", lambda p, q, x: (torch.minimum(p, q).sum() / x).clamp(max=1), "divided by l and capped"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(p, q).sum() / x, "not capped at all"),
    ("lenient_acceptance", lambda p, q, x: (p / x).clamp(max=1).sum(), "capped at 1: a token"),
    ("lenient_acceptance", lambda p, q, x: (p * (p / (x * q)).clamp(max=1)).sum(), "weighted with p"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(p * x, q).sum(), "multiplied by l"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(p, q).sum(), "lenience is not used"),
    ("lenient_acceptance", lambda p, q, x: (q * (p / (x * q)).clamp(max=1)).sum(), "0 / 0"),
    ("in_chens_letters", lambda q, p, x, r: sl.verify_google(q, p, x, padded(r, len(x))), "are counted; the text"),
    ("in_chens_letters", not_swapped, "not swapped"),
    ("in_chens_letters", residual_turned, "wrong way round"),
    ("in_chens_letters", from_target, "not the residual"),
    ("in_chens_letters", early_bonus, "one row too early"),
    ("in_chens_letters", front, "in front"),
]
