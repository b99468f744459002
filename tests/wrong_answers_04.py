"""Wrong answers to the exercises of notebook 04, each with words that its checker's message must hold."""

import torch

import spec_lib as sl
from spec_lib import checks

CHECKERS = {
    "round_tokens": checks.check_round_tokens,
    "greedy_tokens": checks.check_greedy_tokens,
    "tokens_without_bonus": checks.check_tokens_without_bonus,
}


def below(u, p, q):
    return bool(u < p / q)


def a_round(stands=below, law=sl.residual, bonus=lambda p, q: p[-1], uniform=lambda u, t: u[t]):
    def function(p, q, drafted, uniforms, v):
        for t, x in enumerate(drafted.tolist()):
            if not stands(uniform(uniforms, t), p[t, x], q[t, x]):
                return drafted[:t].tolist() + [int(sl.draw(law(p[t], q[t]), v))]
        return drafted.tolist() + [int(sl.draw(bonus(p, q), v))]

    return function


def masked(p, q, drafted, uniforms, v):  # the whole mask, not its beginning
    x = drafted[:, None]
    mask = uniforms < (p[:-1].gather(1, x) / q.gather(1, x)).squeeze(1)
    if mask.all():
        return drafted.tolist() + [int(sl.draw(p[-1], v))]
    first = int((~mask).nonzero()[0])
    return drafted[mask].tolist() + [int(sl.draw(sl.residual(p[first], q[first]), v))]


def goes_on(p, q, drafted, uniforms, v):
    return [
        x if below(uniforms[t], p[t, x], q[t, x]) else int(sl.draw(sl.residual(p[t], q[t]), v))
        for t, x in enumerate(drafted.tolist())
    ]


def keeps(p, q, drafted, uniforms, v):  # off by one: the fallen guess goes with those that stood
    n, law = sl.verify_deepmind(p, q, drafted, uniforms)
    return drafted[: n + 1].tolist() + [int(sl.draw(law, v))]


def alone(p, q, drafted, uniforms, v):
    return drafted[: sl.verify_deepmind(p, q, drafted, uniforms)[0]].tolist()


def no_bonus(p, q, drafted, uniforms, v):
    n, law = sl.verify_deepmind(p, q, drafted, uniforms)
    return drafted[:n].tolist() + ([int(sl.draw(law, v))] if n < len(drafted) else [])


def early(p, q, drafted, uniforms, v):
    n, law = sl.verify_deepmind(p, q, drafted, uniforms)
    law = sl.residual(p[n - 1], q[n - 1]) if n < len(drafted) else law
    return drafted[:n].tolist() + [int(sl.draw(law, v))]


def agree(best, drafted):
    n = 0
    while n < len(drafted) and drafted[n] == best[n]:
        n += 1
    return n


def all_counted(best, drafted):
    n = sum(b == x for b, x in zip(best, drafted, strict=False))
    return [*drafted[:n], best[n]]


def all_that_agree(best, drafted):
    kept = [x for b, x in zip(best, drafted, strict=False) if b == x]
    return [*kept, best[len(kept)]]


WRONG = [
    ("round_tokens", masked, "guesses behind the rejection are kept"),
    ("round_tokens", keeps, "rejected guess is kept"),
    ("round_tokens", lambda *a: goes_on(*a) + [int(sl.draw(a[0][-1], a[4]))], "goes on after a rejection: it"),
    ("round_tokens", goes_on, "goes on after a rejection, and"),
    ("round_tokens", lambda *a: a_round()(*a)[-1:], "accepted guesses are missing"),
    ("round_tokens", alone, "token of the target's own is missing"),
    ("round_tokens", no_bonus, "the bonus is missing"),
    ("round_tokens", a_round(bonus=lambda p, q: p[-2] if len(p) > 1 else p[-1]), "last guess's law"),
    ("round_tokens", a_round(law=lambda p, q: p), "drawn from p"),
    ("round_tokens", a_round(law=lambda p, q: q), "drawn from q"),
    ("round_tokens", a_round(law=lambda p, q: sl.residual(q, p)), "wrong way round"),
    ("round_tokens", early, "one place too early"),
    ("round_tokens", a_round(stands=lambda u, p, q: u < q / p), "upside down"),
    ("round_tokens", a_round(stands=lambda u, p, q: u <= p / q), "a tie accepts"),
    ("round_tokens", a_round(uniform=lambda u, t: u[0]), "one uniform judges all"),
    ("round_tokens", a_round(stands=lambda u, p, q: u < p), "with p instead of p/q"),
    ("round_tokens", a_round(stands=lambda u, p, q: not u < p / q), "swapped"),
    ("greedy_tokens", lambda best, drafted: drafted[: agree(best, drafted)], "target's own token is missing"),
    (
        "greedy_tokens",
        lambda best, drafted: best[: min(agree(best, drafted) + 1, len(drafted))],
        "the bonus is missing",
    ),
    ("greedy_tokens", all_that_agree, "behind the first that is off"),
    (
        "greedy_tokens",
        lambda best, drafted: drafted[: agree(best, drafted)] + best[-1:],
        "always the last of best",
    ),
    (
        "greedy_tokens",
        lambda best, drafted: (drafted + best[-1:])[: agree(best, drafted) + 1],
        "the guess that fell is written",
    ),
    ("greedy_tokens", agree, "not the tokens"),
    ("greedy_tokens", all_counted, "are counted too"),
    ("greedy_tokens", lambda best, drafted: best, "every choice of the target"),
    ("tokens_without_bonus", sl.expected_tokens, "this is with the bonus"),
    ("tokens_without_bonus", lambda a, k: sum(a**n for n in range(1, k + 1)), "only guesses that stood"),
    ("tokens_without_bonus", lambda a, k: a**k, "what is lost"),
    ("tokens_without_bonus", lambda a, k: 1.0 if a == 1 else (1 - a**k) / (1 - a), "value at alpha = 1"),
    ("tokens_without_bonus", lambda a, k: a * k, "as if a rejection did not end"),
    ("tokens_without_bonus", lambda a, k: sl.expected_tokens(a, k) - a, "the loss is alpha^gamma"),
    ("tokens_without_bonus", lambda a, k: sl.expected_tokens(a, k) - 1, "only guesses that stood"),
    ("tokens_without_bonus", lambda a, k: (1 - a**k) / (1 - a), "ZeroDivisionError"),
    ("tokens_without_bonus", lambda a, k: torch.tensor(1 - a**k) / torch.tensor(1 - a), "closed form"),
]
