"""Wrong answers in the style in which students write, each with the words that the check must say to it.

They are written apart from the checks' own lists of mistakes: where two hints change places there, these notice.
"""

from __future__ import annotations

from math import ceil, log, prod
from statistics import mean, median, stdev

import torch

import spec_lib as sl


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


def a_quarter_of_all_runs(times, warm_up):
    counted, cut = sorted(times[warm_up:]), len(times) // 4
    inner = counted[cut : len(counted) - cut] or counted
    return median(counted), inner[-1] - inner[0]


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


def as_many_as_agree(best, drafted):
    n = 0
    for i in range(len(drafted)):
        if drafted[i] == best[i]:
            n += 1
    return best[: n + 1]


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


def same_for_both(gamma, n):
    return gamma - n, gamma - n


def whole_draft(session, k=2):
    drafted = session.propose(k).tokens
    session.accept(k, torch.tensor([5]), [*drafted.tolist(), 5])
    return session


def reads_two(session):
    return whole_draft(session).unread().tolist() == session.text[-2:].tolist()


def looks_at_the_text(session):
    before = len(session.text)
    return len(whole_draft(session).text) == before + 3


def forgets_the_extra_token(size, gamma, cached, after_full):
    if cached:
        return gamma + 1, gamma
    return size + gamma, sum(range(size, size + gamma))


def no_second_draw(p, q):
    return p * q


def under_the_other_hypothesis(p, w, noncentrality):
    return noncentrality / sum((a - b) ** 2 / b for a, b in zip(p.tolist(), w.tolist(), strict=True))


def rounded_up(p, w, noncentrality):
    return int(noncentrality / ((p - w) ** 2 / p).sum()) + 1


def bonus_of_one(p, q, drafted, uniforms):
    n, last = sl.verify_google(p, q, drafted, uniforms)
    if n == len(drafted) == 2:
        last = p[0]
    return n, last


def mask_without_cumprod(p, q, drafted, uniforms):
    k = len(drafted)
    ratio = (p[:k].gather(1, drafted[:, None]) / q.gather(1, drafted[:, None])).squeeze(1)
    n = int((uniforms < ratio).sum())
    return n, sl.residual(p[n], q[n]) if n < k else p[k]


def forgets_the_empty_draft(p, q, drafted, uniforms):
    return (1, p[1]) if uniforms[0] < p[0, drafted[0]] / q[0, drafted[0]] else (0, sl.residual(p[0], q[0]))


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


def ceiling_only(rounds):
    beta = torch.cat([r.overlap[: r.accepted + 1] for r in rounds])
    return len(rounds) / len(beta), float(1 - beta.mean())


def whole_overlaps(rounds):
    n = sum(len(r.tokens) for r in rounds)
    beta = torch.cat([r.overlap for r in rounds])
    bonus = sum(float(r.overlap[-1]) for r in rounds if r.accepted == len(r.drafted))
    return len(rounds) / n, float(1 - beta.mean()) + bonus / n


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


def c_as_seconds(t, tokens, gamma, c, batches):
    return next((b for b in batches if gamma * c + t[b * (gamma + 1)] > tokens * t[b]), 0)


def against_one_request(t, tokens, gamma, c, batches):
    for batch in batches:
        if gamma * c * t[batch] + t[batch * (1 + gamma)] > tokens * t[1]:
            return batch
    return 0


def accepts_in_a_loop_too_late(p, q, u):
    n = 0
    for a, b, c in zip(p, q, u, strict=True):
        n += 1
        if c >= a / b:
            break
    return n


def favourites_only(p, q, u):
    n = 0
    while n < len(p) and p[n] >= q[n]:
        n += 1
    return n


def true_or_false(p, q, u):
    return [int(c < a / b) for a, b, c in zip(p, q, u, strict=True)]


# (exercise, answer, words that the check says)


def index_of_the_loop(p, q, u):
    for i in range(len(p)):
        if u[i] >= p[i] / q[i]:
            break
    return i


def indices(p, q, u):
    accepted = []
    for i in range(len(p)):
        if u[i] >= p[i] / q[i]:
            break
        accepted.append(i)
    return accepted


def an_index_at_zero(logits, temperature):
    return logits.argmax() if temperature == 0 else torch.softmax(logits / temperature, -1)


def one_for_every_tie(logits, temperature):
    return (logits == logits.max()).float() if temperature == 0 else torch.softmax(logits / temperature, -1)


def only_divided(logits, temperature):
    return logits if temperature == 0 else logits / temperature


def one_row_too_many(p, ids):
    return torch.stack([p[t, ids[t + 1]] for t in range(len(ids))])


def cut_and(finish, descending=True):
    """Top-p as it should be, sorted one way or the other, up to the last step."""

    def answer(p, mass):
        values, indices = p.sort(descending=descending)
        values[values.cumsum(-1) - values >= mass] = 0
        return finish(values, indices, torch.zeros_like(p).scatter(-1, indices, values), mass)

    return answer


def counted_unsorted(p, mass):
    k = int((p.cumsum(-1) < mass).sum()) + 1
    values, indices = p.topk(k)
    kept = torch.zeros_like(p).scatter(-1, indices, values)
    return kept / kept.sum()


def each_against_the_mass(p, mass):
    kept = torch.where(p >= mass, p, 0.0)
    return kept / kept.sum()


def one_step_more(prompt, new, cached):
    return prompt + new - 1 if cached else sum(prompt + i for i in range(new + 1))


def from_the_first_token_on(prompt, new, cached):
    return prompt + new - 1 if cached else (prompt + new) * (prompt + new - 1) // 2


def counted_and(finish):
    """The counted times in their order, and the quarter to cut off."""

    def answer(times, warm_up):
        counted = times[warm_up:]
        return finish(counted, sorted(counted), len(counted) // 4)

    return answer


def subtracted_in_place(p, q):
    rest = p.sub_(q).clamp_(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)


def maximum_of_python(p, q):
    return max(0, p - q)


def with_an_if_for_all(p, q):
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    if total == 0:
        return p
    return rest / total


def down_the_columns(p, q):
    rest = p - torch.min(p, q)
    total = rest.sum(0)
    return torch.where(total > 0, rest / total, p)


def never_clamped(p, q, drawn):
    accepted = drawn * (p / q)
    return accepted + (1 - accepted.sum()) * sl.residual(p, q)


def one_minus_each(p, q, drawn):
    accepted = drawn * (p / q).clamp(max=1)
    return accepted + (1 - accepted) * sl.residual(p, q)


def rest_not_divided(p, q, drawn):
    accepted = drawn * (p / q).clamp(max=1)
    return accepted + (1 - accepted.sum()) * (p - q).clamp(min=0)


def upside_down(p, q, drawn):
    accepted = drawn * (q / p).clamp(max=1)
    return accepted + (1 - accepted.sum()) * sl.residual(p, q)


def nothing_drawn(p, q, drawn):
    accepted = (p / q).clamp(max=1)
    return accepted + (1 - accepted.sum()) * sl.residual(p, q)


def in_a_round(
    accepts=lambda p, q, t, x, u, v: u[t] < p[t, x] / q[t, x],
    resampled=lambda p, q, t, u, v: sl.draw(sl.residual(p[t], q[t]), v),
    bonus=lambda p, q, v: sl.draw(p[-1], v),
):
    """The round as a student writes it; what is given in place of a part is that student's mistake."""

    def answer(p, q, drafted, uniforms, v):
        written = []
        for t, x in enumerate(drafted):
            if accepts(p, q, t, x, uniforms, v):
                written.append(x)
            else:
                written.append(resampled(p, q, t, uniforms, v))
                return written
        written.append(bonus(p, q, v))
        return written

    return answer


def bonus_in_the_loop(p, q, drafted, uniforms, v):
    written = []
    for t, x in enumerate(drafted):
        if uniforms[t] < p[t, x] / q[t, x]:
            written.append(x)
        else:
            return [*written, sl.draw(sl.residual(p[t], q[t]), v)]
        return [*written, sl.draw(p[-1], v)]


def sum_of_all_verdicts(p, q, drafted, uniforms, v):
    at = torch.arange(len(drafted))
    n = int((uniforms < p[at, drafted] / q[at, drafted]).sum())
    last = p[-1] if n == len(drafted) else sl.residual(p[n], q[n])
    return [*drafted[:n].tolist(), int(sl.draw(last, v))]


def past_the_end(best, drafted):
    n = 0
    while drafted[n] == best[n]:
        n += 1
    return best[: n + 1]


def padded_by_a_step(cache, length, needed, step):
    cache[:, :, length:] = 0
    more = torch.zeros(*cache.shape[:2], step, cache.shape[3])
    return torch.cat([cache, more], 2)


def a_new_one(cache, length, needed, step):
    positions = (needed + step - 1) // step * step
    return torch.zeros(cache.shape[0], cache.shape[1], positions, cache.shape[3])


def always_float32(cache, length, needed, step):
    larger = a_new_one(cache, length, needed, step)
    larger[:, :, :length] = cache[:, :, :length]
    return larger


def with_all_of_the_old(cache, length, needed, step):
    larger = a_new_one(cache, length, needed, step)
    larger[:, :, : cache.shape[2]] = cache
    return larger


def any_accepted(rounds, first):
    for drafted, accepted in rounds:
        first = drafted + 2 if accepted else max(drafted - 1, 1)
    return first


def below_one(rounds, first):
    drafted, accepted = rounds[-1] if rounds else (first - 2, first - 2)
    return drafted + 2 if drafted == accepted else drafted - 1


def clips_first(ratios):
    weights = [1]
    for ratio in ratios:
        weights.append(weights[-1] * min(1, ratio))
    return weights


def divides_by_zero(p, q):
    pairs = list(zip(p, q, strict=True))
    return sum(1 / sum(max(c / a, d / b) for c, d in pairs) for a, b in pairs)


def independent_of_each_other(p, q):
    overlap = torch.minimum(p, q).sum()
    return 1 - (1 - overlap) ** 2


def parents_only(parents):
    mask = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask[i, parent] = 1
    return mask


def with_minus_one(parents):
    mask = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        mask[i] = torch.maximum(mask[i], mask[parent])  # -1: the last row, in which only the last node stands yet
    return mask


def one_level_late(a1, a2):
    d = 0
    while a1**d >= a2:
        d += 1
    return d + 1


def matches_itself(text, longest, k):
    for n in range(longest, 0, -1):
        for i in range(len(text) - n, -1, -1):
            if text[i : i + n] == text[-n:]:
                return text[i + n : i + n + k]
    return []


def first_match(text, longest, k):
    for n in range(longest, 0, -1):
        for i in range(len(text) - n):
            if text[i : i + n] == text[-n:]:
                return text[i + n : i + n + k]
    return []


def without_plain(drafts):
    gains = [sl.walltime_improvement(alpha, 4, c, lambda n: 1.2) for alpha, c in drafts]
    return gains.index(max(gains))


def adds_the_row_of_minus_one(parents):
    mask = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        mask[i] += mask[parent]
    return mask


def while_above_zero(parents):
    mask = torch.zeros(len(parents), len(parents))
    for i in range(len(parents)):
        j = i
        while j > 0:
            mask[i, j] = 1
            j = parents[j]
    return mask


def root_forgotten(parents):
    mask = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        if parent > 0:
            mask[i] += mask[parent]
    return mask


def divides_by_its_sum(p, q):
    first, rest = torch.minimum(p, q).sum(), (p - q).clamp(min=0)
    return first + (1 - first) * torch.minimum(rest / rest.sum(), q).sum()


def never_divided(p, q):
    first = torch.minimum(p, q).sum()
    return first + (1 - first) * torch.minimum((p - q).clamp(min=0), q).sum()


def without_replacement(p, q):
    first = torch.minimum(p, q).sum()
    found = first.clone()
    for x in range(len(q)):
        others = q.clone()
        others[x] = 0
        if q[x] > p[x] and others.sum() > 0:
            found += (q[x] - p[x]) * torch.minimum(sl.residual(p, q), others / others.sum()).sum()
    return found


def as_tensors(p, q):
    p, q = torch.tensor(p), torch.tensor(q)
    return (1 / torch.maximum(p / p[:, None], q / q[:, None]).sum(1)).sum()


def turned_round(p, q):
    pairs = list(zip(p, q, strict=True))
    return sum(1 / sum(max(a / c if c else 0, b / d if d else 0) for c, d in pairs) for a, b in pairs if a and b)


def begun_inside(ratios):
    for ratio in ratios:
        weights = [1]
        weights.append(min(1, weights[-1] * ratio))
    return weights


def one_range_too_short(ratios):
    weights = [1]
    for i in range(1, len(ratios)):
        weights.append(min(1, weights[-1] * ratios[i]))
    return weights


def searched(text, longest, k, first=0, gap=lambda n: n + 1, copy=lambda text, i, n, k: text[i + n : i + n + k]):
    for n in range(longest, 0, -1):
        for i in range(len(text) - gap(n), first - 1, -1):
            if text[i : i + n] == text[-n:]:
                return copy(text, i, n, k)
    return []


def ends_at_i_plus_k(text, longest, k):
    return searched(text, longest, k, copy=lambda text, i, n, k: text[i + n : i + k])


def copies_on(text, longest, k):
    return searched(text, longest, k, copy=lambda text, i, n, k: (text[i + n :] * k)[:k])


def index_of_a_gain(drafts, gamma=4, v=lambda n: 1.2, swapped=False):
    gains = [sl.walltime_improvement(a, *((c, gamma) if swapped else (gamma, c)), v) for a, c in drafts]
    return gains.index(max(gains)) if max(gains) > 1 else -1


def text_share(rounds, tokens, bonus):
    """Both sides of the identity from a reader's own sums."""
    n = sum(tokens(r) for r in rounds)
    alpha = sum(float(r.overlap[: r.accepted + 1].sum()) for r in rounds) / n
    return len(rounds) / n, 1 - alpha + sum(float(r.overlap[-1]) for r in rounds if bonus(r)) / n


def every_last_one(rounds):
    return text_share(rounds, lambda r: r.accepted + 1, lambda r: True)


def only_resampled(rounds):
    return text_share(rounds, lambda r: r.accepted + 1, lambda r: r.origin == "resampled")


def accepted_as_length(rounds):
    return text_share(rounds, lambda r: r.accepted, lambda r: r.origin == "bonus")


def tokens_left_out(session):
    session.propose(1)
    session.accept(1, torch.tensor([0]), [0])
    return session.length + len(session.unread()) == len(session.text)


def the_draft_itself(session):
    drafted = session.propose(1)
    session.accept(1, torch.tensor([0]), drafted)
    return session.length + len(session.unread()) == len(session.text)


def asserted(session):
    drafted = session.propose(1).tokens
    session.accept(1, torch.tensor([0]), [*drafted.tolist(), 0])
    assert session.length + len(session.unread()) == len(session.text)


def added_before_it_is_multiplied(acceptance):
    total = reached = 1.0
    for chance in acceptance:
        total += reached
        reached *= chance
    return total


def a_tie_loses(t, tokens, gamma, c, batches):
    return next((b for b in batches if gamma * c * t[b] + t[b * (gamma + 1)] >= tokens * t[b]), 0)


def tokens_forgotten(t, tokens, gamma, c, batches):
    return next((b for b in batches if gamma * c * t[b] + t[b * (gamma + 1)] > t[b]), 0)


def median_times(prompt, lengths, baseline, seconds):
    new = sum(n - prompt for n in lengths[1:])
    return new / sum(seconds[1:]), median(baseline[1:]) / median(seconds[1:])


def accepted_as_drafted(p, q):
    agree = (p * q).sum()
    return agree * q + (1 - agree) * p


def matched_tokens(text, longest, k):
    for n in range(longest, 0, -1):
        for i in range(len(text) - n - 1, -1, -1):
            if text[i : i + n] == text[-n:]:
                return text[i : i + k]
    return []


def begins_one_early(text, longest, k):
    for n in range(longest, 0, -1):
        for i in range(len(text) - n - 2, -1, -1):
            if text[i : i + n] == text[-n:]:
                return text[i + n : i + n + k]
    return []


def alpha_and_c_changed_places(drafts):
    gains = [sl.walltime_improvement(c, 4, alpha, lambda n: 1.2) for alpha, c in drafts]
    return gains.index(max(gains)) if max(gains) > 1 else -1


def divided_once(p, q):
    rates = [max(a / p[x], b / q[x]) for x in range(len(p)) if p[x] and q[x] for a, b in zip(p, q, strict=True)]
    return 1 / sum(rates) if rates else 0.0


def crossed(p, q):
    winners = [x for x in range(len(p)) if p[x] and q[x]]
    return sum(1 / sum(max(a / q[x], b / p[x]) for a, b in zip(p, q, strict=True)) for x in winners)


def two_clocks(p, q):
    winners = [x for x in range(len(p)) if p[x] and q[x]]
    return sum(1 / sum(a / p[x] + b / q[x] for a, b in zip(p, q, strict=True)) for x in winners)


def shares(p, q):
    winners = [x for x in range(len(p)) if p[x] and q[x]]
    return [1 / sum(max(a / p[x], b / q[x]) for a, b in zip(p, q, strict=True)) for x in winners] or [0.0]


def seen_to(last):
    return lambda at, end: torch.arange(last(at, end)) <= at[..., None]


def rounded_down(cache, length, needed, step):
    larger = cache.new_zeros(*cache.shape[:2], needed // step * step, cache.shape[3])
    larger[:, :, :length] = cache[:, :, :length]
    return larger


def grown_along(dim, cache, length, needed, step):
    shape = list(cache.shape)
    shape[dim] = -(-needed // step) * step
    larger = cache.new_zeros(shape)
    larger[tuple(slice(n) for n in cache.shape)] = cache
    return larger


def as_up_and_down(rounds, first):
    if not rounds:
        return first
    drafted, accepted = rounds[-1]
    return min(8, drafted + 2) if accepted == drafted else max(1, drafted - 1)


def parent_and_its_parent(parents):
    mask = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask[i, parent] = 1
            if parents[parent] >= 0:
                mask[i, parents[parent]] = 1
    return mask


def all_of_earlier_levels(parents):
    depth = []
    for parent in parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    depth = torch.tensor(depth)
    return (depth < depth[:, None]) | torch.eye(len(parents)).bool()


def row_of_the_parent(parents):
    mask = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask[i] = mask[parent]
    return mask


def next_or(rounds, first, factor=None):
    if not rounds:
        return first
    drafted, accepted = rounds[-1]
    return (drafted * factor if factor else drafted + 2) if accepted == drafted else max(1, drafted - 1)


def once_more(p, q, second):
    first = torch.minimum(p, q).sum()
    return first + (1 - first) * second


# (exercise, answer, words that the check says)
def every_length(alpha, c, seconds):
    gains = {g: sl.expected_tokens(alpha, g) / (g * c + seconds[g + 1] / seconds[1]) for g in range(len(seconds))}
    return max(gains, key=gains.get)


def gaps_filled(alpha, c, seconds):
    known = sorted(seconds)

    def cost(n):
        low, high = max(m for m in known if m <= n), min(m for m in known if m >= n)
        return seconds[low] + (seconds[high] - seconds[low]) * (n - low) / max(1, high - low)

    return max(range(max(known)), key=lambda g: sl.expected_tokens(alpha, g) / (g * c + cost(g + 1) / cost(1)))


def gaps_as_the_longest(alpha, c, seconds):
    longest = seconds[max(seconds)]

    def gain(g):
        return sl.expected_tokens(alpha, g) / (g * c + seconds.get(g + 1, longest) / seconds[1])

    return max(range(max(seconds)), key=gain)


def limit(alpha, v, tokens=0, passes=0):
    found = [(sl.expected_tokens(alpha, g) + tokens - v[g]) / (g + passes) for g in range(1, len(v))]
    return max(0.0, *found)


def bonus_by_itself(rounds):
    overlaps = [x for r in rounds for x in r.overlap[: r.accepted + 1].tolist()]
    bonus = [float(r.overlap[-1]) for r in rounds if r.origin == "bonus"]
    return len(rounds) / len(overlaps), 1 - mean(overlaps) + (mean(bonus) if bonus else 0)


def all_that_was_drafted(rounds):
    overlaps = torch.cat([r.overlap for r in rounds])
    bonus = sum(float(r.overlap[-1]) for r in rounds if r.origin == "bonus")
    return len(rounds) / len(overlaps), float(1 - overlaps.mean()) + bonus / len(overlaps)


def losing(t, tokens, gamma, c, batches):
    return [b for b in batches if gamma * c * t[b] + t[b * (gamma + 1)] > tokens * t[b]] or [0]


def first_and_last_compared(text, longest, k):
    for n in range(min(longest, len(text) - 1), 0, -1):
        for i in range(len(text) - n - 1, -1, -1):
            if text[i] == text[-n] and text[i + n - 1] == text[-1]:
                return text[i + n : i + n + k]
    return []


def chosen(drafts, gammas=(4,)):
    gains = [max(sl.walltime_improvement(alpha, g, c, lambda n: 1.2) for g in gammas) for alpha, c in drafts]
    return gains.index(max(gains)) if max(gains) > 1 else -1


def wins(p, q, weights=None, more=0):
    both = [x for x in range(len(p)) if p[x] and q[x]]
    rates = {x: more + sum(max(a / p[x], b / q[x]) for a, b in zip(p, q, strict=True)) for x in both}
    return sum((weights[x] if weights else 1) / rates[x] for x in both)


def up_to(parents, generations):
    mask = torch.zeros(len(parents), len(parents))
    for i in range(len(parents)):
        node, left = i, generations
        while node >= 0 and left >= 0:
            mask[i, node], node, left = 1, parents[node], left - 1
    return mask


def chances_multiplied(p, q, u):
    n, chance = 0, 1.0
    for t in range(len(p)):
        chance *= min(1, p[t] / q[t])
        if u[t] >= chance:
            break
        n += 1
    return n


def with_the_targets_own(p, q, u):
    n = 0
    while n < len(p) and u[n] < p[n] / q[n]:
        n += 1
    return n + 1


def all_that_tie(p, mass):
    values, _ = p.sort(descending=True)
    smallest = values[values.cumsum(-1) - values < mass].min()
    kept = torch.where(p >= smallest, p, 0)
    return kept / kept.sum()


def cold_is_greedy(logits, temperature):
    if temperature < 0.1:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    return (logits / temperature).softmax(-1)


def unless_they_are_equal(p, q):
    rest = (p - q).clamp(min=0)
    return torch.where((p == q).all(-1, keepdim=True), p, rest / rest.sum(-1, keepdim=True))


def by_one_minus_the_overlap(p, q):
    rejected = 1 - torch.minimum(p, q).sum(-1, keepdim=True)
    return torch.where(rejected > 0, (p - q).clamp(min=0) / rejected, p)


def by_the_distance(p, q):
    distance = (p - q).abs().sum(-1, keepdim=True) / 2
    return torch.where(distance > 0, (p - q).clamp(min=0) / distance, p)


def cumulative(p, q, drafted, uniforms, v, most=1.0):
    written, chance = [], 1.0
    for t, x in enumerate(drafted.tolist()):
        chance *= min(most, float(p[t, x] / q[t, x]))
        if not uniforms[t] < chance:
            return [*written, int(sl.draw(sl.residual(p[t], q[t]), v))]
        written.append(x)
    return [*written, int(sl.draw(p[-1], v))]


def anything_but_the_rejected(p, q, drafted, uniforms, v):
    for t, x in enumerate(drafted.tolist()):
        if not uniforms[t] < p[t, x] / q[t, x]:
            others = p[t].clone()
            others[x] = 0
            return [*drafted[:t].tolist(), int(sl.draw(others / others.sum(), v))]
    return [*drafted.tolist(), int(sl.draw(p[-1], v))]


def not_enough_subtracted(logits, temperature):
    if temperature == 0:
        return torch.eye(len(logits))[logits.argmax()]
    weights = (logits / temperature - logits.max()).exp()
    return weights / weights.sum()


def searched_too_early(text, longest, k):
    for n in range(longest, 0, -1):
        for i in range(len(text) - longest - 1, -1, -1):
            if text[i : i + n] == text[-n:]:
                return text[i + n : i + n + k]
    return []


def without_accepting(session):
    session.propose(1)
    return session.length + len(session.unread()) == len(session.text)


ANSWERS = [
    ("count_accepted", chances_multiplied, "Hint: the ratios are multiplied up"),
    ("count_accepted", with_the_targets_own, "Hint: the token that the target adds is counted too"),
    ("top_p", all_that_tie, "keeps 4 instead of 2"),
    ("temperature", cold_is_greedy, "Hint: a small temperature is taken for 0"),
    ("residual", unless_they_are_equal, "0 was divided by 0"),
    ("residual", by_one_minus_the_overlap, "Hint: the divisor is not the residual's own sum"),
    ("residual", by_the_distance, "Hint: the divisor is not the residual's own sum"),
    ("round_tokens", cumulative, "Hint: the acceptance probabilities are multiplied up"),
    ("round_tokens", lambda *a: cumulative(*a, most=99.0), "Hint: the ratios are multiplied up"),
    ("round_tokens", anything_but_the_rejected, "Hint: only the rejected token is taken out of p"),
    (
        "round_tokens",
        in_a_round(resampled=lambda p, q, t, u, v: sl.draw((p[t] - q[t]).abs() / (p[t] - q[t]).abs().sum(), v)),
        "Hint: the token after a rejection is drawn from |p - q|",
    ),
    ("accepted_count", lambda mask: mask.long().cumprod(0).sum(-1), "and only the sum along a row"),
    ("accepted_count", lambda mask: mask.long().prod(-1), "accepted whole"),
    ("misprinted_lines", lambda: (7, 8, 10), "read the context in line 12 to its end."),
    ("smallest_test", without_accepting, "Hint: the round was not finished"),
    ("count_accepted", lambda p, q, u: 0, "expected  1\n  Perhaps (going by this case alone)"),
    ("count_accepted", index_of_the_loop, "Hint: this is the position at which the loop ends"),
    ("count_accepted", indices, "Hint: these are the positions"),
    ("temperature", an_index_at_zero, "Hint: at temperature 0 this is the number"),
    ("temperature", one_for_every_tie, "get 2 in all"),
    ("temperature", lambda logits, t: logits.softmax(-1), "Hint: the temperature is not used"),
    ("temperature", only_divided, "Hint: these are still logits"),
    (
        "temperature",
        lambda logits, t: (logits / t).exp() / (logits / t).exp().sum() if t else (logits == logits.max()).float(),
        "Hint: exp overflows",
    ),
    ("temperature", not_enough_subtracted, "Hint: exp still overflows"),
    ("token_probabilities", one_row_too_many, "so n - 1 are asked for"),
    (
        "token_probabilities",
        lambda p, ids: p.gather(1, ids.roll(-1)[:, None])[:, 0],
        "Hint: the last row is asked about the first token",
    ),
    (
        "token_probabilities",
        lambda p, ids: [1.0, *(float(p[t, ids[t + 1]]) for t in range(len(ids) - 1))],
        "Hint: the first token has no number here",
    ),
    (
        "token_probabilities",
        lambda p, ids: [p[t - 1, ids[t]] for t in range(len(ids))],
        "Hint: the first token is asked about too",
    ),
    ("token_probabilities", lambda p, ids: p[:-1].softmax(-1).gather(1, ids[1:, None]), "Hint: softmax was applied"),
    ("token_probabilities", lambda p, ids: p[:-1, ids[1:]], "Hint: each row is asked about every token"),
    ("top_p", cut_and(lambda v, i, kept, mass: kept / kept.sum(), descending=False), "sort in descending order"),
    ("top_p", cut_and(lambda v, i, kept, mass: v.gather(-1, i) / v.sum()), "Hint: gather was used"),
    ("top_p", cut_and(lambda v, i, kept, mass: v[v > 0] / v.sum()), "as 0"),
    ("top_p", cut_and(lambda v, i, kept, mass: kept.softmax(-1)), "Hint: softmax was used to scale"),
    ("top_p", cut_and(lambda v, i, kept, mass: kept / mass), "Hint: the kept probabilities are divided by top_p"),
    ("top_p", lambda p, mass: p / p.sum(), "Hint: nothing is cut off"),
    ("top_p", counted_unsorted, "Hint: how many tokens are kept was counted"),
    ("top_p", each_against_the_mass, "Hint: each probability is compared"),
    ("positions", one_step_more, "Hint: this is one step too many"),
    ("positions", from_the_first_token_on, "Hint: the prompt was counted as if"),
    ("pass_times", lambda w, i, n, b, p: 1000 * w * i / b, "Hint: this is the time of the weights alone"),
    ("pass_times", lambda w, i, n, b, p: (w * i / b / 1000, 2 * w * n / p / 1000), "Hint: seconds were divided"),
    ("pass_times", lambda w, i, n, b, p: (1000 * b / (w * i), 1000 * p / (2 * w * n)), "Hint: turned round"),
    ("cost_per_token", lambda f, e, d, g, k: f + e * (g + 1) + d * g / k, "Hint: only the last term is divided"),
    ("cost_per_token", lambda f, e, d, g, k: (f + e * (g + 1) + d) / k, "Hint: the time of one draft token"),
    ("cost_per_token", lambda f, e, d, g, k: (f + e * (g + 1) + d * g) // k, "Hint: the fraction is cut off"),
    ("cost_per_token", lambda f, e, d, g, k: k / (f + e * (g + 1) + d * g), "Hint: turned round"),
    ("median_and_spread", counted_and(lambda t, s, k: (median(s), s[-k] - s[k])), "Hint: the upper end"),
    ("median_and_spread", counted_and(lambda t, s, k: (median(s), t[-1 - k] - t[k])), "Hint: the times are not sorted"),
    (
        "median_and_spread",
        counted_and(lambda t, s, k: (median(s), max(t[k : len(t) - k]) - min(t[k : len(t) - k]))),
        "Hint: the middle half was cut from the times as they came",
    ),
    ("median_and_spread", counted_and(lambda t, s, k: (median(s), max(s[k:-k]) - min(s[k:-k]))), "-0 is 0"),
    ("median_and_spread", counted_and(lambda t, s, k: (median(s), (s[k], s[-1 - k]))), "Hint: these are the two ends"),
    ("median_and_spread", counted_and(lambda t, s, k: (median(s[k:-k]), s[k:-k][-1] - s[k:-k][0])), "-0 is 0"),
    (
        "bytes_read",
        lambda la, w, v, c, n, i: i * la * (12 * w * w + 2 * c * w + v * w),
        "Hint: the head is counted in every layer",
    ),
    (
        "bytes_read",
        lambda la, w, v, c, n, i: i * (la * (12 * w * w + 2 * c * w) + v * w + n * w),
        "Hint: the rows that the input looks up",
    ),
    (
        "bytes_read",
        lambda la, w, v, c, n, i: i * la * (12 * w * w + 2 * c * w) + v * w,
        "Hint: not all numbers are multiplied by itemsize",
    ),
    ("residual", subtracted_in_place, "changes an argument"),
    ("residual", maximum_of_python, "take one number"),
    ("residual", with_an_if_for_all, "use clamp(min=0) and torch.where"),
    ("residual", down_the_columns, "Hint: the sum runs down the columns"),
    ("residual", lambda p, q: (p - q).softmax(-1), "Hint: softmax was used to scale the difference"),
    ("distribution_of_mismatch", never_clamped, "Hint: p / q is used where it is above 1"),
    ("distribution_of_mismatch", one_minus_each, "Hint: each token has its own"),
    ("distribution_of_mismatch", rest_not_divided, "Hint: max(0, p - q) is not divided"),
    ("distribution_of_mismatch", upside_down, "Hint: the ratio is upside down"),
    ("distribution_of_mismatch", nothing_drawn, "Hint: how often each token is drafted"),
    (
        "round_tokens",
        in_a_round(resampled=lambda p, q, t, u, v: sl.draw(sl.residual(p[t], q[t]), u[t])),
        "Hint: the last draw uses the uniform of a verdict again",
    ),
    ("round_tokens", in_a_round(lambda p, q, t, x, u, v: p[t, x] >= q[t, x]), "Hint: a draft token is accepted only"),
    ("round_tokens", in_a_round(lambda p, q, t, x, u, v: v < p[t, x] / q[t, x]), "Hint: `v` decides"),
    (
        "round_tokens",
        in_a_round(
            lambda p, q, t, x, u, v: u[t] < p[t + 1, x] / q[t, x],
            lambda p, q, t, u, v: sl.draw(sl.residual(p[t + 1], q[t]), v),
        ),
        "Hint: the row of p is one too late",
    ),
    (
        "round_tokens",
        in_a_round(
            resampled=lambda p, q, t, u, v: sl.residual(p[t], q[t]).argmax(), bonus=lambda p, q, v: p[-1].argmax()
        ),
        "Hint: the last token is the likeliest one",
    ),
    ("round_tokens", in_a_round(bonus=lambda p, q, v: sl.draw(q[-1], v)), "Hint: the bonus is drawn from q"),
    ("round_tokens", in_a_round(bonus=lambda p, q, v: sl.draw(p[0], v)), "Hint: the bonus is drawn from the first row"),
    (
        "round_tokens",
        in_a_round(bonus=lambda p, q, v: sl.draw(sl.residual(p[-1], q[-1]) if len(q) else p[-1], v)),
        "Hint: the bonus is drawn from a residual",
    ),
    (
        "round_tokens",
        in_a_round(resampled=lambda p, q, t, u, v: sl.draw(sl.residual(p, q), v)),
        "from one row of p, or from its residual",
    ),
    ("round_tokens", bonus_in_the_loop, "Hint: the round ends after the first draft token"),
    ("round_tokens", sum_of_all_verdicts, "Hint: all verdicts that say accept are counted"),
    (
        "tokens_without_bonus",
        lambda alpha, gamma: sum(alpha**n for n in range(1, gamma)),
        "Hint: alpha^0 = 1 is missing",
    ),
    ("tokens_without_bonus", lambda alpha, gamma: sum(alpha**n for n in range(gamma - 1)), "Hint: the last term"),
    ("greedy_tokens", past_the_end, "has to end with the draft"),
    ("tokens_without_bonus", lambda alpha, gamma: 1 + sum(alpha**n for n in range(gamma)), "Hint: this is one token"),
    ("count_accepted", lambda p, q, u: sum(c < a / b for a, b, c in zip(p, q, u, strict=True)), "never verified"),
    ("count_accepted", accepts_in_a_loop_too_late, "rejected token itself"),
    ("count_accepted", favourites_only, "still has the chance p / q"),
    ("count_accepted", true_or_false, "yours     0, 1"),
    ("temperature", greedy_forgotten, "temperature 0 divides by zero"),
    ("temperature", only_where_hot, "is a `return` missing"),
    ("temperature", lambda logits, t: logits.softmax(-1) / t, "divided, not the logits"),
    ("top_p", without_its_last, "is left out"),
    ("top_p", not_scaled, "not divided by their sum"),
    ("positions", off_by_one, "the last token is fed too"),
    ("positions", lambda prompt, new, c: new if c else prompt * new + new * (new - 1) // 2, "the prompt is still read"),
    ("token_probabilities", lambda p, ids: p.gather(1, ids[:, None])[:, 0], "which it has read"),
    ("token_probabilities", lambda p, ids: p[1:].gather(1, ids[1:, None])[:, 0], "the first row was left out"),
    ("cost_per_token", lambda f, e, d, g, k: (f + g * e + g * d) / k, "reads gamma + 1 tokens"),
    ("median_and_spread", lambda times, w: (median(times[w:]), stdev(times[w:])), "standard deviation"),
    ("median_and_spread", a_quarter_of_all_runs, "a quarter of those that are counted"),
    ("pass_times", lambda w, i, n, b, p: (1000 * w * i / b, 1000 * w * n / p), "a multiplication and an addition"),
    ("pass_times", lambda w, i, n, b, p: (w * i / b, 2 * w * n / p), "milliseconds are asked for"),
    ("pass_times", lambda w, i, n, b, p: (1000 * n * w * i / b, 2000 * w * n / p), "fetched once in a pass"),
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
    ("greedy_tokens", as_many_as_agree, "stops at the first that differs"),
    ("tokens_without_bonus", closed_form, "closed form divides"),
    ("tokens_without_bonus", lambda alpha, gamma: (1 - alpha**gamma) / (1 - alpha), "a sum needs no division"),
    ("accepted_count", with_an_if, "a loop with an `if`"),
    ("accepted_count", by_lists, "a loop with an `if`"),
    ("accepted_count", one_sum, "each row has its own"),
    ("lenient_acceptance", ratio_first, "0 / 0 is summed"),
    ("sees", lambda at, end: torch.arange(end) < at[..., None], "a token sees itself, too"),
    ("sees", lambda at, end: torch.arange(end) <= at, "give it a last dimension of 1"),
    ("sees", lambda at, end: torch.arange(end) <= at.max() + 0 * at[..., None], "everything is seen"),
    ("sees", lambda at, end: (torch.arange(end) <= at[..., None]).transpose(1, 2), "not the other way round"),
    ("batch_speedup", lambda t, v, d, b, g: t * v(b) / (v(b * g) + g * d(b)), "one more token than is drafted"),
    ("batch_speedup", lambda t, v, d, b, g: t * b * v(1) / (v(b * (g + 1)) + g * d(b)), "not `batch` passes over one"),
    ("batch_speedup", lambda t, v, d, b, g: t * v(b) / (v(g + 1) + g * d(b)), "the drafts of all texts"),
    ("steps", lambda rounds, slots: sum(max(rounds[i : i + slots]) for i in range(0, len(rounds), slots)), "at once"),
    ("steps", lambda rounds, slots: max(sum(rounds[i::slots]) for i in range(slots)), "dealt out in turn"),
    ("steps", lambda rounds, slots: -(-sum(rounds) // slots), "cannot be cut into pieces"),
    ("misprinted_lines", lambda: (7, 8, 12), "line 7 is right"),
    ("misprinted_lines", lambda: [8, 10, 11], "line 11 is right"),
    ("trims", same_for_both, "cut as much as the target"),
    ("smallest_test", reads_two, "read its last draft token at once"),
    ("smallest_test", looks_at_the_text, "OneShort passes"),
    ("smallest_test", lambda s: s.length + 1 == len(s.text), "accept the whole draft"),
    ("smallest_test", lambda s: s.accept(1, 0, [0]), "raised TypeError"),
    ("fed_in_round", forgets_the_extra_token, "forgotten after a full acceptance"),
    ("distribution_of_drawing_twice", no_second_draw, "the second draw is missing"),
    ("samples_needed", under_the_other_hypothesis, "not by w"),
    ("samples_needed", rounded_up, "it is rounded up"),
    ("broken_rule", bonus_of_one, "four tests see nothing"),
    ("broken_rule", mask_without_cumprod, "accepted too often or too rarely"),
    ("broken_rule", forgets_the_empty_draft, "a draft of 0 tokens raised IndexError"),
    ("diagnosis", lambda: "FDCAEB", "one digit for each of the patients"),
    ("diagnosis", lambda: (4, 6, 5, 1, 3, 2), "3 and 5 are swapped"),
    ("diagnosis", lambda: 436152, "was declared right"),
    ("real_patients", lambda: "HK", "six digits between quotes"),
    ("real_patients", lambda: 20024, "six digits between quotes"),  # a number forgets its zeros in front
    ("real_patients", lambda: "020026", "the number of the fault (1 to 5)"),
    ("real_patients", lambda: "123454", "the first token that is wrong (0: none, or 1, 2, 3)"),
    ("real_patients", lambda: ("02002", 2), "accepts everything writes what the draft model writes"),
    ("real_patients", lambda: [0, 2, 0, 0, 3, 4], "token 3 is wrong as well, but not the first"),
    ("real_patients", lambda: "000204", "was called wrong that raises no alarm"),
    ("tokens_from_positions", averaged, "mean over the positions"),
    ("tokens_from_positions", lambda a: 1 + len(a) * prod(a), "only drafts that are accepted whole"),
    ("gamma_from_table", starts_at_one, "where nothing pays, answer 0"),
    ("break_even_c", may_be_negative, "less than nothing"),
    ("alpha_of_whole_rounds", all_rounds, "are still in"),
    ("identity_sides", ceiling_only, "the bonus term is missing"),
    ("identity_sides", whole_overlaps, "never belonged to the text"),
    ("speed", in_percent, "percent faster"),
    ("speed", mean_of_rates, "rates were averaged"),
    ("break_even_batch", one_draft_in_all, "batch * (gamma + 1), not batch + gamma"),
    ("break_even_batch", against_one_request, "serves the whole batch"),
    ("grown", padded_by_a_step, "count from `needed`"),
    ("next_length", lambda rounds, first: rounds[-1].drafted + 2 if rounds else first, "a pair of numbers"),
    ("next_length", lambda rounds, first: max(1, rounds[-1][0] - 1), "before the first round"),
    ("visible", lambda s, n, b: torch.full((n, b), -torch.inf).triu(s + 1), "added to the scores"),
    ("visible", lambda s, n, b: torch.arange(b)[:, None] <= s + torch.arange(n), "rows are new tokens"),
    ("grown", a_new_one, "what the cache held is lost"),
    ("grown", with_all_of_the_old, "leave zeros there"),
    ("grown", always_float32, "for a cache of torch.float64 this gives torch.float32"),
    ("next_length", any_accepted, "some of it is not enough"),
    ("next_length", below_one, "must not fall below 1"),
    ("next_length", lambda rounds, first: rounds[-1][0] + 2, "raised IndexError"),
    ("visible", lambda start, n, bucket: torch.ones(n, bucket).tril(start - 1), "a token sees itself too"),
    ("visible", lambda start, n, bucket: torch.ones(n, bucket).tril(), "not 0"),
    ("visible", lambda start, n, bucket: torch.ones(n, bucket).triu(start + 1), "asked for is what may be seen"),
    ("prefix_weights", clips_first, "multiply first, then clip"),
    ("prefix_weights", lambda ratios: [min(1, prod(ratios[:i])) for i in range(len(ratios) + 1)], "at every step"),
    ("prefix_weights", lambda ratios: list(ratios), "expected"),
    ("same_probability", lambda p, q: sum(map(min, zip(p, q, strict=True))), "the upper limit"),
    ("same_probability", divides_by_zero, "cannot win both races"),
    ("two_candidates", independent_of_each_other, "verifies the second against p again"),
    ("two_candidates", lambda p, q: 2 * torch.minimum(p, q).sum(), "yours"),
    ("tree_mask", parents_only, "all ancestors up to the root"),
    ("tree_mask", with_minus_one, "as an index it means the last one"),
    ("branch_from", lambda a1, a2: torch.tensor(a2).log().item() / torch.tensor(a1).log().item(), "whole number"),
    ("branch_from", one_level_late, "too deep"),
    ("two_ways", lambda p, q: (torch.minimum(p, q).sum(), p.max()), "that of q, not of p"),
    (
        "two_ways",
        lambda p, q: (torch.minimum(p, q).sum(), (p / q)[q.argmax()].clamp(max=1)),
        "a certain token has q = 1",
    ),
    ("find", matches_itself, "the end of the text matches itself"),
    ("find", first_match, "the latest counts"),
    ("find", lambda text, longest, k: text[text.index(text[-1]) + 1 :][:k], "yours"),
    ("choose", lambda drafts: drafts.index(max(drafts)), "the cost counts, too"),
    ("choose", without_plain, "return -1"),
    ("choose", lambda drafts: index_of_a_gain(drafts, v=1.2), "v as a function"),
    ("choose", lambda drafts: index_of_a_gain(drafts, swapped=True), "gamma must be a whole number"),
    ("choose", lambda drafts: index_of_a_gain(drafts, gamma=5), "gamma is 4"),
    ("choose", lambda drafts: index_of_a_gain(drafts, v=lambda n: 1.2 * n), "not of each"),
    ("choose", lambda drafts: max(drafts, key=lambda d: d[0] / d[1]), "do not divide by it"),
    ("find", ends_at_i_plus_k, "ends at i + n + k"),
    ("find", copies_on, "stops there"),
    ("find", lambda text, longest, k: searched(text, longest, k, first=1), "position 0"),
    ("find", lambda text, longest, k: searched(text, longest, k, gap=lambda n: 2 * n), "may overlap"),
    ("two_ways", lambda p, q: torch.minimum(p, q).sum(), "two numbers are asked for"),
    ("two_ways", lambda p, q: ((p / q).clamp(max=1).mean(), p[q.argmax()]), "not the mean of the ratios"),
    ("prefix_weights", begun_inside, "before the loop"),
    ("prefix_weights", one_range_too_short, "the first ratio is left out"),
    ("same_probability", as_tensors, "0 / 0 is nan"),
    ("same_probability", turned_round, "turned round"),
    ("same_probability", lambda p, q: torch.minimum(p, q).sum(), "lists of numbers"),
    ("two_candidates", divides_by_its_sum, "0 is divided by 0"),
    ("two_candidates", never_divided, "divide it by its sum"),
    ("two_candidates", without_replacement, "from the whole q"),
    ("tree_mask", adds_the_row_of_minus_one, "it adds the last row"),
    ("tree_mask", while_above_zero, "until the parent is -1"),
    ("tree_mask", root_forgotten, "only -1 has no ancestors"),
    ("branch_from", lambda a1, a2: ceil(log(a2) / log(a1)), "equal is not less"),
    ("branch_from", lambda a1, a2: 1 if a2**1 < a1 else 2, "turned round"),
    ("accepted_count", lambda mask: mask.long().cumprod(-1), "the running product itself"),
    ("accepted_count", lambda mask: mask.long().cumprod(-1).sum(-1, keepdim=True), "keepdim=True leaves"),
    ("misprinted_lines", lambda: "8, 10, 11", "2 of yours are among them"),
    ("lenient_acceptance", lambda p, q, x: (p / (x * q)).clamp(max=1).sum(), "the token is drafted at all"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(q / x, p).sum(), "the two are swapped"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(p / x, q).mean(), "a mean over the vocabulary"),
    ("lenient_acceptance", lambda p, q, x: torch.minimum(p / x, q), "add up the shares"),
    ("lenient_acceptance", lambda p, q, x: 1 - torch.minimum(p / x, q).sum(), "that is rejected"),
    ("trims", lambda gamma, n: (gamma - n, abs(gamma - 1 - n)), "-1 has become 1"),
    ("trims", lambda gamma, n: gamma - n, "two numbers are asked for"),
    ("smallest_test", tokens_left_out, "takes all 2 new ids as `tokens`, [3, 0]; got [0]"),
    ("smallest_test", the_draft_itself, "takes all 2 new ids as `tokens`, [3, 0]; got Draft("),
    ("smallest_test", asserted, "expected  True"),
    ("fed_in_round", lambda s, g, c, full: (g + full, g + 1) if c else (sum(range(s, s + g)), s + g), "are swapped"),
    ("fed_in_round", lambda s, g, cached, full: (g + 1, g + full) if cached else (s + g, s + g - 1), "gamma passes"),
    ("fed_in_round", lambda s, g, cached, full: (g + 1 + full, g) if cached else (s, s), "not the target's"),
    ("fed_in_round", lambda s, g, cached, full: (g + 1, g + full), "without a cache each pass reads the whole text"),
    ("fed_in_round", lambda s, g, cached, full: (s + g, sum(range(s, s + g))), "only what its model has not read"),
    ("distribution_of_drawing_twice", accepted_as_drafted, "does not have the distribution q"),
    ("samples_needed", lambda p, w, x: x / ((w - p) ** 2 / p).mean(), "not a mean"),
    ("samples_needed", lambda p, w, x: x / ((w - p) ** 2 / p), "add up over the categories"),
    ("tokens_from_positions", added_before_it_is_multiplied, "multiply first, then add"),
    ("tokens_from_positions", lambda a: 1 + prod(a), "counts as one token"),
    ("tokens_from_positions", lambda a: sl.expected_tokens(a[0] if a else 0, len(a)), "taken for all"),
    ("gamma_from_table", gaps_filled, "was measured"),
    ("gamma_from_table", every_length, "take each n from the table"),
    ("gamma_from_table", gaps_as_the_longest, "measured at n = 1, 2 and 9 only"),
    ("break_even_c", lambda alpha, v: limit(alpha, v, tokens=-1), "begin with 1"),
    ("break_even_c", lambda alpha, v: limit(alpha, v, passes=1), "not gamma + 1"),
    ("identity_sides", bonus_by_itself, "counts by their share"),
    ("identity_sides", all_that_was_drafted, "no token of the text"),
    ("identity_sides", every_last_one, "comes only after a whole accepted draft"),
    ("identity_sides", only_resampled, "comes only after a whole accepted draft"),
    ("identity_sides", accepted_as_length, "without the one that the target adds"),
    ("speed", lambda p, n, a, b: (sum(a[1:]) / sum(b[1:]), sum(x - p for x in n[1:]) / sum(b[1:])), "are swapped"),
    ("speed", lambda p, n, a, b: (sum(x - p for x in n[1:]) / sum(b[1:]), sum(a) / sum(b)), "counted in the ratio"),
    ("speed", median_times, "medians are divided"),
    ("speed", lambda p, n, a, b: (sum(x - p for x in n[1:]) / sum(b), sum(a[1:]) / sum(b[1:])), "warm-up's seconds"),
    ("speed", lambda p, n, a, b: (sum(x - p for x in n) / sum(b[1:]), sum(a[1:]) / sum(b[1:])), "warm-up's tokens"),
    ("break_even_batch", lambda *given: losing(*given)[-1], "not the last"),
    ("break_even_batch", lambda *given: given[4].index(losing(*given)[0]), "the batch size itself"),
    ("break_even_batch", a_tie_loses, "breaks even loses nothing"),
    ("break_even_batch", c_as_seconds, "a draft pass takes c * t[batch]"),
    ("break_even_batch", tokens_forgotten, "with `tokens` plain passes"),
    ("two_ways", lambda p, q: (torch.minimum(p, q).sum(), q.argmax()), "asked for is the p that it has"),
    ("two_ways", lambda p, q: (torch.minimum(p, q).mean(), p[q.argmax()]), "not their mean"),
    ("two_ways", lambda p, q: (1 - (p - q).abs().sum(), p[q.argmax()]), "TV is half of the sum"),
    ("two_ways", lambda p, q: (torch.minimum(p, q).sum(), torch.minimum(p, q)[q.argmax()]), "handed over as certain"),
    ("two_ways", lambda p, q: ((p / q).clamp(max=1).sum(), p[q.argmax()]), "no acceptance is above 1"),
    ("two_ways", lambda p, q: (torch.minimum(p, q), p[q.argmax()]), "4 numbers, and 2 are asked for"),
    ("find", matched_tokens, "this is the match itself"),
    ("find", searched_too_early, "Hint: a match of fewer than"),
    ("find", begins_one_early, "begins at len(text) - n - 1"),
    ("find", lambda text, longest, k: searched(text, longest, k + 1), "one number too many"),
    ("find", first_and_last_compared, "every one of the n tokens has to match"),
    ("choose", alpha_and_c_changed_places, "alpha comes first and c third"),
    ("choose", lambda drafts: chosen(drafts, range(1, 9)), "no other gamma"),
    ("choose", lambda drafts: chosen([(alpha, c / 4) for alpha, c in drafts]), "four draft passes"),
    ("same_probability", shares, "one number is asked for, and these are 2"),
    ("same_probability", divided_once, "instead of 1 over them all"),
    ("same_probability", crossed, "the p or the q of x below its own"),
    ("same_probability", two_clocks, "not their sum"),
    ("same_probability", lambda p, q: wins(p, q, weights=p), "is in there already"),
    ("same_probability", lambda p, q: wins(p, q, more=1), "add no other"),
    ("sees", lambda at, end: torch.arange(end) >= at[..., None], "not at least"),
    ("sees", seen_to(lambda at, end: end + 1), "one column too many"),
    ("sees", seen_to(lambda at, end: end - 1), "one column too few"),
    ("sees", seen_to(lambda at, end: int(at.max()) + 1), "whatever is seen of them"),
    ("sees", lambda at, end: (torch.arange(end) <= at[..., None]) & (torch.arange(end) < end - 1), "the last column"),
    ("sees", lambda at, end: torch.arange(end) <= at[:, :1, None] + 0 * at[..., None], "as far as its first"),
    ("sees", lambda at, end: (torch.arange(end) <= at[..., None]).transpose(0, 1), "texts are the first dimension"),
    ("batch_speedup", lambda t, v, d, b, g: (t + 1) * v(b) / (v(b * (g + 1)) + g * d(b)), "bonus token already"),
    ("batch_speedup", lambda t, v, d, b, g: (t - 1) * v(b) / (v(b * (g + 1)) + g * d(b)), "the last one included"),
    ("batch_speedup", lambda t, v, d, b, g: t * v(b) / (v(b * (g + 1)) + g * d(b * g)), "whatever gamma is"),
    ("batch_speedup", lambda t, v, d, b, g: t * v(b) / (v(b + g + 1) + g * d(b)), "not plus"),
    ("batch_speedup", lambda t, v, d, b, g: t * v / (v + g * d), "v and v_draft are functions"),
    ("steps", lambda rounds, slots: sum(rounds) / slots, "not even into whole steps"),
    ("grown", rounded_down, "`needed` is rounded up"),
    ("grown", lambda *a: grown_along(3, *a), "the shape is (2, 2, 4), and (2, 4) is asked for"),
    ("next_length", as_up_and_down, "after 8 tokens come 10"),
    ("next_length", lambda rounds, first: min(20, next_or(rounds, first)), "there is no upper limit"),
    ("next_length", lambda rounds, first: next_or(rounds, first + 2), "return `first` as it is"),
    ("next_length", lambda rounds, first: next_or(rounds, first, 2), "not twice as many"),
    ("visible", lambda s, n, b: torch.arange(b) >= s + torch.arange(n)[:, None], "not at least"),
    ("visible", lambda s, n, b: torch.arange(b) == s + torch.arange(n)[:, None], "not enough"),
    ("visible", lambda s, n, b: torch.ones(n, b), "everything is seen"),
    ("visible", lambda s, n, b: torch.arange(b) <= s + torch.arange(n), "compare a row of `bucket` positions"),
    ("visible", lambda s, n, b: torch.arange(s + n) <= s + torch.arange(n)[:, None], "a column for each"),
    ("two_candidates", lambda p, q: once_more(p, q, (sl.residual(p, q) * q).sum()), "sum of their products"),
    ("two_candidates", lambda p, q: torch.minimum(sl.residual(p, q), q).sum(), "weight it, and add the first's"),
    ("tree_mask", parent_and_its_parent, "not only the parent and its parent"),
    ("tree_mask", lambda parents: up_to(parents, 3), "three generations"),
    ("tree_mask", lambda parents: up_to(parents, 6), "a chain of twelve"),
    ("tree_mask", all_of_earlier_levels, "an earlier level is not enough"),
    ("tree_mask", row_of_the_parent, "replaces the node's own"),
]
