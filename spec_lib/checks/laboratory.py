"""The laboratory of notebook 07: a pair as a table small enough for thousands of texts, and samplers that may be wrong.

Each sampler has six tests, `TESTS`: two of its first draft token, four of its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

import torch

from ..decoding import speculative_rounds
from ..pairs import Pair
from ..records import Generation
from ..sampling import Randomness, Sampling
from .faulty import Careless, Rows, Sampler, Text

GAMMA, TOP_K, LENGTH = 2, 4, 4  # the draft's length; what each model may write at a position; tokens compared
TESTS = ("drafted", "accepted", *(f"text {m}" for m in range(1, LENGTH + 1)))


class Lookup:
    """A model that looks its rows up, by the whole text."""

    max_length, device = None, torch.device("cpu")

    def __init__(self, rows: Rows, vocab: int):
        self.rows, self.vocab, self.text = rows, vocab, ()

    def fresh(self) -> Lookup:
        return Lookup(self.rows, self.vocab)

    @property
    def length(self) -> int:
        return len(self.text)

    def feed(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        answers = []
        for x in ids.tolist():
            self.text = (*self.text, x)
            answers.append(row_of(self.rows, self.text, self.vocab))
        return torch.stack(answers[-keep:] if keep else answers)

    def rollback(self, length: int) -> None:
        self.text = self.text[:length]


def row_of(rows: Rows, text: Text, vocab: int) -> torch.Tensor:
    """Where the table ends: token 0, for certain.  Such a text is too long to be compared, or already forbidden."""
    return rows[text] if text in rows else torch.eye(vocab, dtype=torch.float64)[0].log()


def first(texts: Mapping[Text, float], m: int) -> Counter:
    """The same counts, or probabilities, of the first m tokens."""
    found = Counter()
    for text, weight in texts.items():
        found[text[:m]] += weight
    return found


class Table:
    """A pair after one prompt, each model restricted to its four likeliest tokens: all that four tokens can need.

    p_rows, q_rows: the models' rows.  tokens: the pair's id of each id of the table.  prompt: (1,), the table's last
    id, which stands for the whole prompt.
    """

    def __init__(self, pair: Pair, prompt: str = "open"):
        ids, texts, p, q = pair.encode(pair.prompts[prompt]), [()], {}, {}
        for depth in range(LENGTH + 1):
            p |= zip(texts, _likeliest(pair.target, ids, texts), strict=True)
            q |= zip(texts, _likeliest(pair.draft, ids, texts), strict=True)
            # A text may go on with what the target writes; at the end only with draft tokens, which are verified.
            texts = [(*t, x) for t in texts for x in sorted(q[t] if depth == LENGTH - 1 else p[t] | q[t])]
        self.tokens = sorted({x for rows in (p, q) for row in rows.values() for x in row})
        self.vocab = len(self.tokens) + 1
        self.root, self.prompt = (self.vocab - 1,), torch.tensor([self.vocab - 1])
        self.p_rows, self.q_rows = self._dense(p), self._dense(q)

    def _dense(self, rows: dict[Text, dict[int, float]]) -> Rows:
        number, found = {x: i for i, x in enumerate(self.tokens)}, {}
        for text, row in rows.items():
            full = torch.zeros(self.vocab, dtype=torch.float64)
            for x, probability in row.items():
                full[number[x]] = probability
            found[*self.root, *(number[x] for x in text)] = full.log()
        return found

    def target(self) -> Lookup:
        return Lookup(self.p_rows, self.vocab)

    def draft(self, rows: Rows | None = None) -> Lookup:
        return Lookup(self.q_rows if rows is None else rows, self.vocab)

    def distribution(self, m: int = LENGTH, text: Text = ()) -> dict[Text, float]:
        """The target's probability of each text of m tokens after `text`."""
        if m == 0:
            return {(): 1.0}
        row, found = self.p_rows[self.root + text].exp(), {}
        for x in row.nonzero()[:, 0].tolist():
            rest = self.distribution(m - 1, (*text, x))
            found |= {(x, *more): float(row[x]) * weight for more, weight in rest.items()}
        return found

    def q(self, sampler: Sampler) -> torch.Tensor:
        """The first draft token's q, as handed to the rule: (vocab,)."""
        rows = self.q_rows if sampler.rows is None else sampler.rows
        return sampler.draft_sampling.probabilities(rows[self.root])

    def null(self, sampler: Sampler) -> dict[str, dict]:
        """What each of `TESTS` compares with: the distribution if nothing is wrong with this sampler."""
        q, texts = self.q(sampler), self.distribution()
        overlap = float(torch.minimum(self.p_rows[self.root].exp(), q).sum())
        return _by_test(_as_dict(q), overlap, texts)

    def sample(self, sampler: Sampler, samples: int, seed: int) -> dict[str, Counter]:
        """Counts for each of `TESTS`, from so many texts that the shipped loop writes."""
        drafted, texts, accepted = Counter(), Counter(), 0
        drafter, randomness = Careless(self.draft(sampler.rows), sampler.drawn_from), Randomness(seed)
        options = {"gamma": GAMMA, "rule": sampler.rule, "draft_sampling": sampler.draft_sampling}
        for _ in range(samples):
            text: Text = ()
            rounds = speculative_rounds(
                self.target(), drafter, self.prompt, 2 * GAMMA + 3, generator=randomness, **options
            )
            for r in rounds:
                if not text:
                    drafted[int(r.drafted[0])] += 1
                    accepted += r.accepted > 0
                text += tuple(r.tokens)
                if len(text) >= LENGTH:
                    break
            texts[text[:LENGTH]] += 1
        return _by_test(drafted, accepted, texts, samples)

    def exact(self, sampler: Sampler) -> dict[str, dict]:
        """This sampler's own distributions for each of `TESTS`, by enumeration of its rounds: no sampling."""
        done, accepted = Counter(), 0.0
        unfinished = [Counter({(): 1.0}), *(Counter() for _ in range(LENGTH - 1))]  # by length
        for length in range(LENGTH):
            for text, weight in unfinished[length].items():
                for chance, n, new in self._ways(self.root + text, sampler):
                    accepted += chance * (n > 0) * (length == 0)
                    longer = text + new
                    (done if len(longer) >= LENGTH else unfinished[len(longer)])[longer[:LENGTH]] += weight * chance
        return _by_test(_as_dict(sampler.drawn_from(self.q(sampler))), accepted, done)

    def _ways(self, text: Text, sampler: Sampler) -> Iterator[tuple[float, int, Text]]:
        """Every way of one round: (probability, draft tokens accepted, tokens written)."""
        for chance, drafted, rows in self._drafts(text, sampler, GAMMA):
            p = torch.stack([row_of(self.p_rows, text + drafted[:i], self.vocab) for i in range(GAMMA + 1)]).exp()
            q, x = torch.stack(rows), torch.tensor(drafted)
            acceptance = [min(1.0, float(p[i, t] / q[i, t])) for i, t in enumerate(drafted)]
            # A uniform of 0 accepts, and one of 1 rejects wherever a rejection is possible.
            for uniforms in product((0.0, 1.0), repeat=GAMMA):
                weight = chance * prod(1 - a if u else a for a, u in zip(acceptance, uniforms, strict=True))
                if weight > 0:
                    n, last = sampler.rule(p, q, x, torch.tensor(uniforms))
                    for y in last.nonzero()[:, 0].tolist():
                        yield weight * float(last[y]), int(n), (*drafted[: int(n)], y)

    def _drafts(self, text: Text, sampler: Sampler, k: int) -> list[tuple[float, Text, list[torch.Tensor]]]:
        """Every draft: (probability, its tokens, the q handed to the rule at each)."""
        if k == 0:
            return [(1.0, (), [])]
        rows = self.q_rows if sampler.rows is None else sampler.rows
        q = sampler.draft_sampling.probabilities(row_of(rows, text, self.vocab))
        return [
            (chance * weight, (x, *rest), [q, *more])
            for x, chance in _as_dict(sampler.drawn_from(q)).items()
            for weight, rest, more in self._drafts((*text, x), sampler, k - 1)
        ]


@torch.no_grad()
def negative_log_likelihood(model: torch.nn.Module, g: Generation, sampling: Sampling) -> float:
    """The mean of -log p over the tokens that were generated, in nats: how improbable the model finds them."""
    p = sampling.probabilities(model(g.ids).logits[0, -len(g.tokens) - 1 : -1])  # (new, vocab)
    return float(-p.gather(1, g.tokens[:, None].to(p.device)).log().mean())


@torch.no_grad()
def _likeliest(model: torch.nn.Module, ids: torch.Tensor, texts: list[Text]) -> list[dict[int, float]]:
    """After the prompt and each of these texts: {token: probability} of the likeliest tokens, which share all of it."""
    more = torch.tensor(texts, dtype=torch.int64, device=ids.device).view(len(texts), -1)
    batch = torch.cat([ids.expand(len(texts), -1), more], 1)
    logits = torch.cat([model(part).logits[:, -1] for part in batch.split(64)])
    values, tokens = Sampling(top_k=TOP_K).probabilities(logits).cpu().double().topk(TOP_K)
    shares = (values / values.sum(1, True)).tolist()
    return [dict(zip(x, share, strict=True)) for x, share in zip(tokens.tolist(), shares, strict=True)]


def _as_dict(p: torch.Tensor) -> dict[int, float]:
    return {x: float(p[x]) for x in p.nonzero()[:, 0].tolist()}


def _by_test(drafted: Mapping, accepted: float, texts: Mapping[Text, float], total: float = 1.0) -> dict:
    accepts = {"accepted": accepted, "rejected": total - accepted}
    return dict(zip(TESTS, (drafted, accepts, *(first(texts, m) for m in range(1, LENGTH + 1))), strict=True))
