"""Wrong answers to the exercises of notebook 02: (exercise, implementation, words of the checker's message)."""

from statistics import mean, median, stdev

from spec_lib.checks import check_bytes_read, check_cost_per_kept_token, check_knee, check_median_and_spread

CHECKERS = {
    "cost_per_kept_token": check_cost_per_kept_token,
    "median_and_spread": check_median_and_spread,
    "knee": check_knee,
    "bytes_read": check_bytes_read,
}


def middle_half(times):
    kept = sorted(times)[len(times) // 4 : len(times) - len(times) // 4]
    return kept[-1] - kept[0]


def both(times):
    return median(times), middle_half(times)


def upper_middle(times, warm_up):
    kept = sorted(times[warm_up:])
    return kept[len(kept) // 2], middle_half(kept)


def read_as_it_stands(v, factor):
    found = 0
    for n, time in v.items():
        if time > factor * v[1]:
            break
        found = n
    return found


def weights(layers, width, vocab):
    return 12 * layers * width**2 + vocab * width


WRONG = [
    ("cost_per_kept_token", lambda f, e, d, g, k: (f + (g + 1) * e + g * d) / (g + 1), "shared out over all"),
    ("cost_per_kept_token", lambda f, e, d, g, k: (f + (g + 1) * e) / k, "draft's time is missing"),
    ("cost_per_kept_token", lambda f, e, d, g, k: (f + g * e + g * d) / k, "reads gamma + 1"),
    ("cost_per_kept_token", lambda f, e, d, g, k: (f + (g + 1) * (e + d)) / k, "draft makes gamma passes"),
    ("cost_per_kept_token", lambda f, e, d, g, k: (f + k * e + g * d) / k, "rejected guess has been read"),
    ("cost_per_kept_token", lambda f, e, d, g, k: ((g + 1) * (f + e) + g * d) / k, "once a pass"),
    ("cost_per_kept_token", lambda f, e, d, g, k: f + (g + 1) * e + g * d, "whole round"),
    ("median_and_spread", lambda times, w: both(times), "counted too"),
    ("median_and_spread", lambda times, w: both(sorted(times)[w:]), "not the fastest"),
    ("median_and_spread", lambda times, w: both(times[: len(times) - w]), "at the beginning"),
    ("median_and_spread", lambda times, w: (mean(times[w:]), middle_half(times[w:])), "is the mean"),
    ("median_and_spread", upper_middle, "half way"),
    ("median_and_spread", lambda times, w: (median(times[w:]), max(times[w:]) - min(times[w:])), "that of all runs"),
    ("median_and_spread", lambda times, w: (median(times[w:]), stdev(times[w:])), "standard deviation"),
    ("knee", lambda v, f: min((n for n in v if v[n] > f * v[1]), default=max(v)), "first n that costs too much"),
    ("knee", lambda v, f: max(t for t in v.values() if t <= f * v[1]), "time at the knee"),
    ("knee", lambda v, f: max(n for n in v if v[n] / n <= f * v[1]), "times a token"),
    ("knee", lambda v, f: max(n for n in v if v[n] < f * v[1]), "still counts"),
    ("knee", lambda v, f: max(n for n in v if v[n] <= f * v[1]), "dip behind the knee"),
    ("knee", read_as_it_stands, "sort it by n"),
    ("bytes_read", lambda la, w, v, c, n, i: weights(la, w, v) + 2 * la * c * w, "not bytes"),
    (
        "bytes_read",
        lambda la, w, v, c, n, i: i * (n * weights(la, w, v) + 2 * la * c * w),
        "weights are fetched n times",
    ),
    ("bytes_read", lambda la, w, v, c, n, i: i * n * (weights(la, w, v) + 2 * la * c * w), "all is fetched n times"),
    ("bytes_read", lambda la, w, v, c, n, i: i * (weights(la, w, 0) + 2 * la * c * w), "head is missing"),
    ("bytes_read", lambda la, w, v, c, n, i: i * (weights(la, w, 2 * v) + 2 * la * c * w), "counted twice"),
    ("bytes_read", lambda la, w, v, c, n, i: i * (weights(la, w, v) + la * c * w), "keys or values are missing"),
    ("bytes_read", lambda la, w, v, c, n, i: i * weights(la, w, v), "cache is missing"),
    ("bytes_read", lambda la, w, v, c, n, i: i * (weights(la, w, v) + 2 * c * w), "one layer only"),
    ("bytes_read", lambda la, w, v, c, n, i: i * (weights(la, w, v) + 2 * la * (c + n) * w), "counted as cached"),
]
