"""Wrong answers in the style in which students write, each with the words that the check must say to it.

They are written apart from the checks' own lists of mistakes: where two hints change places there, these notice.
"""

from __future__ import annotations

from math import prod
from statistics import mean, median, stdev

import torch

import spec_lib as sl


def stops_one_early(rounds):
    total = 0
    for i in range(len(rounds) - 1):
        total += rounds[i].accepted + 1
    return total / len(rounds)


def in_half_precision(p, q):
    return sl.residual(p.half(), q.half())


def greedy_forgotten(logits, temperature):
    logits /= temperature  # in place, and by zero
    return logits.softmax(-1)


def only_where_hot(logits, temperature):
    if temperature > 0:
        return (logits / temperature).softmax(-1)


def without_its_last(p, mass):
    values, indices = p.sort(descending=True)
    values[values.cumsum(-1) >= mass] = 0
    kept = torch.zeros_like(p).scatter(-1, indices, values)
    return kept / kept.sum()


def not_scaled(p, mass):
    values, indices = p.sort(descending=True)
    values = values * (values.cumsum(-1) - values < mass)
    return torch.zeros_like(p).scatter(-1, indices, values)


def off_by_one(prompt, new, cached):
    total = 0
    for i in range(1, new + 1):
        total += (prompt + 1 if i == 1 else 1) if cached else prompt + i
    return total


def as_it_stands(v, factor):
    found = 1
    for n in v:
        if v[n] > factor * v[1]:
            return found
        found = n
    return found


def a_thousandth_is_nothing(p, q):
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 1e-3, rest / total, p)


def clamped(p, q):
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total.clamp(min=1e-6), p)


def one_total_for_all(p, q):
    rest = torch.relu(p - q)
    return rest / rest.sum() if rest.sum() > 0 else p


def flattened(p, q):
    return sl.residual(p, q).flatten()


def summed_without_keepdim(p, q):
    rest = (p - q).clamp(min=0)
    return torch.where(rest.sum(-1) > 0, rest / rest.sum(-1), p)


def accepted_below_drawn(p, q, drawn):
    accepted = torch.minimum(p, drawn)
    return accepted + (1 - accepted.sum()) * sl.residual(p, q)


def resampled_from_p(p, q, drawn):
    accepted = drawn * torch.clamp(p / q, max=1)
    return accepted + (1 - accepted.sum()) * p


def the_whole_mask(p, q, drafted, uniforms, v):
    x = drafted.unsqueeze(1)
    mask = uniforms < (p[:-1].gather(1, x) / q.gather(1, x)).squeeze(1)
    if mask.all():
        return drafted.tolist() + [int(sl.draw(p[-1], v))]
    first = int((~mask).nonzero()[0])
    return drafted[mask].tolist() + [int(sl.draw(sl.residual(p[first], q[first]), v))]


def one_too_far(p, q, drafted, uniforms, v):
    n, last = sl.verify_deepmind(p, q, drafted, uniforms)
    return drafted[: n + 1].tolist() + [int(sl.draw(last, v))]


def tie_accepts(p, q, drafted, uniforms, v):
    written = []
    for t, x in enumerate(drafted.tolist()):
        if uniforms[t] > p[t, x] / q[t, x]:
            return [*written, sl.draw(sl.residual(p[t], q[t]), v)]
        written.append(x)
    return [*written, sl.draw(p[-1], v)]


def up_to_the_length(best, drafted):
    n = 0
    while n < len(drafted) and drafted[n] == best[n]:
        n += 1
    return best[: min(n + 1, len(drafted))]


def all_that_agree(best, drafted):
    n = sum(b == x for b, x in zip(best, drafted, strict=False))
    return drafted[:n] + [best[n]]


def closed_form(alpha, gamma):
    return torch.tensor(1 - alpha**gamma) / torch.tensor(1 - alpha)


def with_an_if(mask):
    counts = []
    for row in mask if mask.ndim == 2 else mask[None]:
        n = 0
        for accepted in row:
            if not accepted:
                break
            n += 1
        counts.append(n)
    return torch.tensor(counts)


def by_lists(mask):
    rows = mask.tolist() if mask.ndim == 2 else [mask.tolist()]
    return torch.tensor([(row + [False]).index(False) for row in rows])


def one_sum(mask):
    return mask.long().cumprod(-1).sum()


def ratio_first(p, q, lenience):
    return (q * torch.clamp(p / (lenience * q), max=1)).sum()


def target_first(q, p, drafted, r):
    padding = torch.zeros(len(drafted) - len(r))
    return sl.verify_google(q, p, drafted, torch.cat([r, padding]))


def in_one_tensor(q, p, drafted, r):
    n, last = sl.verify_google(q, p, drafted, torch.cat([r, torch.zeros(len(drafted) - len(r))]))
    return torch.cat([torch.tensor([n + 1.0]), last])


def same_for_both(gamma, n):
    return gamma - n, gamma - n


def fed_again(drafted, n, token):
    drafted[n:] = [token]  # in place
    return drafted


def forgets_the_extra_token(size, gamma, cached, after_full):
    if cached:
        return gamma + 1, gamma
    return size + gamma, sum(range(size, size + gamma))


def no_second_draw(p, q):
    return p * q


def counts_up(power, wanted):
    n = 1
    while power(n) < wanted:
        n += 1
    return n


def stops_doubling(power, wanted):
    n = 1
    while power(n) < wanted:
        n = n * 2
    return n


def averaged(acceptance):
    return sl.expected_tokens(sum(acceptance) / len(acceptance), len(acceptance)) if acceptance else 1.0


def starts_at_one(alpha, c, seconds):
    cost = {n: s / seconds[1] for n, s in seconds.items()}
    return max((n - 1 for n in seconds if n > 1), key=lambda g: sl.walltime_improvement(alpha, g, c, cost.get))


def may_be_negative(alpha, v):
    return max((sl.expected_tokens(alpha, g) - v[g]) / g for g in range(1, len(v)))


def all_rounds(rounds):
    accepted = sum(r.accepted for r in rounds)
    return accepted / (accepted + sum(1 for r in rounds if r.accepted < len(r.drafted)))


def in_percent(prompt, lengths, baseline, seconds):
    new = sum(n - prompt for n in lengths[1:])
    return new / sum(seconds[1:]), (mean(baseline[1:]) / mean(seconds[1:]) - 1) * 100


def mean_of_rates(prompt, lengths, baseline, seconds):
    rates = [(n - prompt) / s for n, s in zip(lengths, seconds, strict=True)][1:]
    return mean(rates), mean(baseline[1:]) / mean(seconds[1:])


def one_draft_in_all(t, tokens, gamma, c, batches):
    for batch in batches:
        if gamma * c * t[batch] + t[batch + gamma] > tokens * t[batch]:
            return batch
    return 0


def against_one_request(t, tokens, gamma, c, batches):
    for batch in batches:
        if gamma * c * t[batch] + t[batch * (1 + gamma)] > tokens * t[1]:
            return batch
    return 0


# (exercise, answer, words that the check says)
ANSWERS = [
    ("tokens_per_pass", lambda rounds: sum(r.accepted for r in rounds) / len(rounds), "is not counted"),
    ("tokens_per_pass", lambda rounds: sum(r.accepted + 1 for r in rounds), "added up, not divided"),
    ("tokens_per_pass", stops_one_early, "yours     0\n  expected  3"),
    ("acceptance_rate", lambda rs: sum(r.accepted for r in rs) / sum(len(r.drafted) for r in rs), "never verified"),
    ("temperature", greedy_forgotten, "temperature 0 divides by zero"),
    ("temperature", only_where_hot, "is a `return` missing"),
    ("temperature", lambda logits, t: logits.softmax(-1) / t, "divided, not the logits"),
    ("top_p", without_its_last, "is left out"),
    ("top_p", not_scaled, "not divided by their sum"),
    ("positions", off_by_one, "the last token is fed too"),
    ("cost_per_kept_token", lambda f, e, d, g, k: (f + g * e + g * d) / k, "reads gamma + 1 tokens"),
    ("median_and_spread", lambda times, w: (median(times[w:]), stdev(times[w:])), "standard deviation"),
    ("knee", as_it_stands, "sort it by n"),
    ("bytes_read", lambda la, w, v, c, n, i: i * (12 * la * w**2 + v * w + la * c * w), "keys or values are missing"),
    ("residual", lambda p, q: torch.relu(p - q) / torch.relu(p - q).sum(-1, keepdim=True), "0 was divided by 0"),
    ("residual", a_thousandth_is_nothing, "not with a small number"),
    ("residual", clamped, "raised to a small number"),
    ("residual", one_total_for_all, "over all rows together"),
    ("residual", flattened, "arranged differently"),
    (
        "residual",
        lambda p, q: torch.relu(p - q) / torch.relu(p - q).sum(),
        "0 was divided by 0 (the answer is p there)",
    ),
    ("residual", summed_without_keepdim, "keepdim=True"),
    ("residual", in_half_precision, "does something round them"),
    ("distribution_of_mismatch", resampled_from_p, "resampled from p"),
    ("distribution_of_mismatch", accepted_below_drawn, "it divides by q"),
    ("round_tokens", the_whole_mask, "after the rejection are kept"),
    ("round_tokens", one_too_far, "rejected draft token is kept"),
    ("round_tokens", tie_accepts, "a tie accepts"),
    ("greedy_tokens", up_to_the_length, "the bonus is missing"),
    ("greedy_tokens", all_that_agree, "are counted too"),
    ("tokens_without_bonus", closed_form, "closed form divides"),
    ("tokens_without_bonus", lambda alpha, gamma: (1 - alpha**gamma) / (1 - alpha), "raised ZeroDivisionError"),
    ("accepted_count", with_an_if, "a loop with an `if`"),
    ("accepted_count", by_lists, "a loop with an `if`"),
    ("accepted_count", one_sum, "each row has its own"),
    ("lenient_acceptance", ratio_first, "0 / 0 is summed"),
    ("in_chens_letters", target_first, "the text also grows"),
    ("in_chens_letters", in_one_tensor, "arranged differently"),
    ("trims", same_for_both, "cut as much as the target"),
    ("pending_for_draft", fed_again, "all accepted tokens are fed again"),
    ("fed_in_round", forgets_the_extra_token, "forgotten after a full acceptance"),
    ("distribution_of_drawing_twice", no_second_draw, "the second draw is missing"),
    ("alarm_threshold", lambda cells, z: cells + z * (2 * cells) ** 0.5, "there is one less"),
    ("samples_needed", counts_up, "tried one after the other"),
    ("samples_needed", stops_doubling, "the doubling stops"),
    ("diagnosis", lambda: "FDCAEB", "one digit for each of the patients"),
    ("diagnosis", lambda: (4, 6, 5, 1, 3, 2), "3 and 5 are swapped"),
    ("diagnosis", lambda: 436152, "was declared right"),
    ("tokens_from_positions", averaged, "mean over the positions"),
    ("tokens_from_positions", lambda a: 1 + len(a) * prod(a), "only drafts that are accepted whole"),
    ("gamma_from_table", starts_at_one, "where nothing pays, answer 0"),
    ("break_even_c", may_be_negative, "less than nothing"),
    ("alpha_of_whole_rounds", all_rounds, "are still in"),
    ("speed", in_percent, "percent faster"),
    ("speed", mean_of_rates, "rates were averaged"),
    ("break_even_batch", one_draft_in_all, "for each request, not gamma + 1 in all"),
    ("break_even_batch", against_one_request, "serves the whole batch"),
]
