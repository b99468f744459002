"""Wrong answers to the exercises of notebook 07: (exercise, implementation, words of the checker's message)."""

import torch

from spec_lib.checks import (
    check_alarm_threshold,
    check_diagnosis,
    check_law_of_asking_twice,
    check_runs_needed,
)
from spec_lib.verification import residual

CHECKERS = {
    "law_of_asking_twice": check_law_of_asking_twice,
    "alarm_threshold": check_alarm_threshold,
    "runs_needed": check_runs_needed,
    "diagnosis": check_diagnosis,
}


def completed(kept, rest):
    return kept + (1 - kept.sum()) * rest


def doubling(power, wanted):
    n = 1
    while power(n) < wanted:
        n *= 2
    return n


def one_by_one(power, wanted, start=1, enough=lambda a, b: a >= b):
    n = start
    while not enough(power(n), wanted):
        n += 1
    return n


WRONG = [
    ("law_of_asking_twice", lambda p, q: p, "first draw was kept"),
    ("law_of_asking_twice", lambda p, q: p * q, "second draw is missing"),
    ("law_of_asking_twice", lambda p, q: p * q / (p * q).sum(), "scaled to 1"),
    ("law_of_asking_twice", lambda p, q: p * q + p, "added whole"),
    ("law_of_asking_twice", lambda p, q: completed(torch.minimum(p, q), p), "min(1, p/q)"),
    ("law_of_asking_twice", lambda p, q: completed(p * q, residual(p, q)), "comes from the residual"),
    ("law_of_asking_twice", lambda p, q: completed(p * q, q), "comes from q"),
    ("law_of_asking_twice", lambda p, q: p * q + (1 - p * q) * p, "one number for all tokens"),
    ("alarm_threshold", lambda cells, z: cells + z * (2 * cells) ** 0.5, "one less"),
    ("alarm_threshold", lambda cells, z: (cells - 1) + z * 2 * (cells - 1), "multiplied by the variance"),
    ("alarm_threshold", lambda cells, z: (cells - 1) + z * (cells - 1) ** 0.5, "2 d, not d"),
    ("alarm_threshold", lambda cells, z: z * (2 * (cells - 1)) ** 0.5, "mean is missing"),
    ("alarm_threshold", lambda cells, z: (cells - 1) - z * (2 * (cells - 1)) ** 0.5, "below the mean"),
    ("alarm_threshold", lambda cells, z: cells - 1 + z, "standard deviation is missing"),
    ("runs_needed", doubling, "doubling stops"),
    ("runs_needed", lambda f, w: one_by_one(f, w) - 1, "not enough"),
    ("runs_needed", lambda f, w: one_by_one(f, w) + 1, "one too many"),
    ("runs_needed", lambda f, w: one_by_one(f, w, enough=lambda a, b: a > b), "compare with <"),
    ("runs_needed", lambda f, w: one_by_one(f, w, start=2), "never tried"),
    ("runs_needed", one_by_one, "one after the other"),
    ("diagnosis", lambda: "463251", "swapped: an argmax"),
    ("diagnosis", lambda: "643152", "declared healthy"),
    ("diagnosis", lambda: "436152", "declared healthy"),
    ("diagnosis", lambda: "364152", "sought in a text"),
    ("diagnosis", lambda: "465132", "3 and 5 are swapped"),
    ("diagnosis", lambda: "143652", "taken for the other kind"),
    ("diagnosis", lambda: "111111", "none stands twice"),
    ("diagnosis", lambda: "FDCAEB", "one digit for each"),
]
