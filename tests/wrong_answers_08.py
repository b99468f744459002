"""Wrong answers to the exercises of notebook 08: (exercise, implementation, words of the checker's message)."""

from math import prod

import spec_lib as sl
from spec_lib.checks import (
    check_alpha_of_whole_rounds,
    check_break_even_c,
    check_gamma_from_table,
    check_tokens_from_places,
)

CHECKERS = {
    "tokens_from_places": check_tokens_from_places,
    "gamma_from_table": check_gamma_from_table,
    "break_even_c": check_break_even_c,
    "alpha_of_whole_rounds": check_alpha_of_whole_rounds,
}


def reached(places):
    return [prod(places[:i]) for i in range(len(places) + 1)]


def best(gain, gammas):
    return max(gammas, key=gain)


def textbook(alpha, c, seconds):
    return best(lambda g: sl.walltime_improvement(alpha, g, c), [n - 1 for n in seconds])


def over_gamma(alpha, c, seconds):
    cost = {g: seconds[g] / seconds[1] for g in seconds}
    return best(lambda g: sl.expected_tokens(alpha, g) / (g * c + cost[g]) if g else 1, [0, *seconds])


def in_seconds(alpha, c, seconds):
    return best(lambda g: sl.expected_tokens(alpha, g) / (g * c + seconds[g + 1]), [n - 1 for n in seconds])


def free_draft(alpha, c, seconds):
    return best(lambda g: sl.expected_tokens(alpha, g) / (seconds[g + 1] / seconds[1]), [n - 1 for n in seconds])


def never_zero(alpha, c, seconds):
    v = {n: t / seconds[1] for n, t in seconds.items()}
    return best(lambda g: sl.walltime_improvement(alpha, g, c, v.get), [n - 1 for n in seconds if n > 1])


def tokens_in_the_pass(alpha, c, seconds):
    v = {n: t / seconds[1] for n, t in seconds.items()}
    return best(lambda g: sl.walltime_improvement(alpha, g, c, v.get) if g else 1, [n - 1 for n in seconds]) + 1


def limits(alpha, v, at=0):
    return [(sl.expected_tokens(alpha, g) - v[g - at]) / g for g in range(1, len(v))]


def rate(rounds, rejected=lambda r: r.accepted < len(r.drafted)):
    kept = sum(r.accepted for r in rounds)
    return kept / (kept + sum(rejected(r) for r in rounds))


def whole(rounds):
    return [r for r in rounds if not r.cut]


WRONG = [
    ("tokens_from_places", lambda a: sum(reached(a)[1:]), "is not counted"),
    ("tokens_from_places", lambda a: 1 + sum(a), "are added as if"),
    ("tokens_from_places", lambda a: sl.expected_tokens(sum(a) / len(a), len(a)), "mean of the places"),
    ("tokens_from_places", lambda a: sum(reached(a)[:-1]), "last guess is missing"),
    ("tokens_from_places", lambda a: 1 + len(a) * prod(a), "only whole drafts"),
    ("gamma_from_table", textbook, "as in the textbook"),
    ("gamma_from_table", over_gamma, "over gamma tokens"),
    ("gamma_from_table", in_seconds, "seconds and passes are mixed"),
    ("gamma_from_table", free_draft, "the draft is free"),
    ("gamma_from_table", never_zero, "answer 0"),
    ("gamma_from_table", tokens_in_the_pass, "gamma is one less"),
    ("gamma_from_table", lambda alpha, c, seconds: max(seconds) - 1, "most tokens a pass"),
    ("break_even_c", lambda alpha, v: alpha, "textbook's answer"),
    ("break_even_c", lambda alpha, v: max(0.0, limits(alpha, v)[0]), "only gamma = 1"),
    (
        "break_even_c",
        lambda alpha, v: max(0.0, *(x * g for g, x in enumerate(limits(alpha, v), 1))),
        "a whole round may",
    ),
    ("break_even_c", lambda alpha, v: max(0.0, min(limits(alpha, v))), "smallest limit"),
    ("break_even_c", lambda alpha, v: max(0.0, *limits(alpha, v, at=1)), "as if it read gamma tokens"),
    ("break_even_c", lambda alpha, v: max(limits(alpha, v)), "less than nothing"),
    ("alpha_of_whole_rounds", rate, "still in"),
    (
        "alpha_of_whole_rounds",
        lambda rs: sum(r.accepted for r in whole(rs)) / sum(len(r.drafted) for r in whole(rs)),
        "nobody judged them",
    ),
    ("alpha_of_whole_rounds", lambda rs: rate(whole(rs), lambda r: 1), "every round counts one rejection"),
    ("alpha_of_whole_rounds", lambda rs: rate(rs[:-1]), "cut or not"),
    ("alpha_of_whole_rounds", lambda rs: rate([r for r in whole(rs) if r.rejected is not None]), "only rounds with"),
    (
        "alpha_of_whole_rounds",
        lambda rs: sum(rate([r]) for r in whole(rs) if len(r.drafted)) / sum(len(r.drafted) > 0 for r in whole(rs)),
        "were averaged",
    ),
    ("tokens_from_places", lambda a: 1 + sum(x ** (i + 1) for i, x in enumerate(a)), "raised to a power"),
]
