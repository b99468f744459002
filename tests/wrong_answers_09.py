"""Wrong answers to the exercises of notebook 09: (exercise, implementation, words of the checker's message)."""

from statistics import mean, median

from spec_lib.checks import check_break_even, check_how_much_faster, check_tokens_per_second

CHECKERS = {
    "how_much_faster": check_how_much_faster,
    "tokens_per_second": check_tokens_per_second,
    "break_even": check_break_even,
}


def both(ratio):
    return ratio, 100 * (ratio - 1)


def rates(prompt, lengths, seconds):
    return [(n - prompt) / s for n, s in zip(lengths[1:], seconds[1:], strict=True)]


WRONG = [
    ("how_much_faster", lambda base, fast: both(mean(fast) / mean(base)), "upside down"),
    (
        "how_much_faster",
        lambda base, fast: (mean(base) / mean(fast), 100 * (1 - mean(fast) / mean(base))),
        "share of the time that was saved",
    ),
    ("how_much_faster", lambda base, fast: (mean(base) / mean(fast), 100 * mean(base) / mean(fast)), "not 200"),
    ("how_much_faster", lambda base, fast: (mean(base) / mean(fast), mean(base) / mean(fast) - 1), "a fraction"),
    (
        "how_much_faster",
        lambda base, fast: both(mean(a / b for a, b in zip(base, fast, strict=True))),
        "ratios were averaged",
    ),
    ("how_much_faster", lambda base, fast: both(median(base) / median(fast)), "medians were divided"),
    ("tokens_per_second", lambda p, n, s: sum(n[1:]) / sum(s[1:]), "the prompt is counted"),
    ("tokens_per_second", lambda p, n, s: sum(x - p for x in n) / sum(s), "the warm-up is counted"),
    ("tokens_per_second", lambda p, n, s: sum(n) / sum(s), "prompt and warm-up"),
    ("tokens_per_second", lambda p, n, s: mean(rates(p, n, s)), "rates were averaged"),
    ("tokens_per_second", lambda p, n, s: sum(s[1:]) / sum(x - p for x in n[1:]), "seconds a token"),
    ("tokens_per_second", lambda p, n, s: (sum(n[1:]) - p) / sum(s[1:]), "taken off once"),
    ("tokens_per_second", lambda p, n, s: sum(x - p for x in n[1:]) / sum(s), "its seconds are not"),
    ("break_even", lambda gamma, c, cost: 1 + gamma * c, "textbook formula"),
    ("break_even", lambda gamma, c, cost: c + cost, "gamma passes, not one"),
    ("break_even", lambda gamma, c, cost: (gamma + 1) * c + cost, "not gamma + 1"),
    ("break_even", lambda gamma, c, cost: gamma * c + cost + 1, "one was added"),
    ("break_even", lambda gamma, c, cost: 1 / (gamma * c + cost), "reciprocal"),
    ("break_even", lambda gamma, c, cost: gamma * (c + cost), "one pass a round"),
]
