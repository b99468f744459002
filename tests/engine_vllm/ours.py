"""What spec_lib says of the same pair: greedy texts, acceptance with its error, exact probabilities."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import torch

import spec_lib as sl
from spec_lib.checks.chi_squared import LEAST, Result, goodness_of_fit, p_value

GAMMA, NEW = 4, 64
BEGINNINGS = (
    "Once upon a time there was a king who had three",
    "The old woman looked out of the window and saw",
    '"Who are you, and where do you come from?" asked the',
    "There was once a poor man who had so many children that",
    "In the middle of the forest stood a little house, and in it",
    "The princess sat down by the well and began to",
    "A long time ago there lived a fisherman and his wife, who",
    "When the morning came, the youngest brother took his",
    "The wolf knocked at the door and said,",
    "Then the giant fell asleep, and Jack crept out of",
    "The cat said to the fox, 'I know only one",
    "There was a great feast in the castle, and all the",
    "The tailor sewed all night long, and in the morning",
    "'Dear father,' said the girl, 'do not be",
    "The bird flew up into the tree and sang:",
    "Far away, beyond the sea, there was an island where",
    "The dragon had seven heads, and every year",
    "As soon as the sun had set, the soldier",
    "The miller's son had nothing left but",
    "At last they came to a gate of iron, and before it",
)
SEEDS = 8  # texts of each beginning at temperature 1
# The beginning repeats itself, so that n-grams too draft within the first three tokens.
REPEATING = (
    "The king said to the queen, 'The old man is in the garden, and the old woman is in the house.' The queen said to "
    "the king, 'The old man is in the house, and the old woman is in the garden.' The king said to the"
)
OTHER = ()  # the outcome that stands for all that are not listed


@dataclass(frozen=True)
class Acceptance:
    """As vLLM counts it: rounds after the first token, the last one whole even where it runs beyond the text's end.

    error: of alpha, over texts.  share: accepted / drafted."""

    drafts: int
    accepted: int
    alpha: float
    error: float

    @property
    def share(self) -> float:
        return self.accepted / (GAMMA * self.drafts)

    @property
    def tokens_per_pass(self) -> float:
        return 1 + self.accepted / self.drafts


def acceptance(texts: list[list[sl.records.Round]]) -> Acceptance:
    """texts: the rounds of each, all of them whole."""
    accepted = torch.tensor([sum(r.accepted for r in rounds) for rounds in texts], dtype=torch.float64)
    tested = accepted + torch.tensor([sum(r.origin == "resampled" for r in rounds) for rounds in texts])
    alpha = float(accepted.sum() / tested.sum())
    error = float((accepted - alpha * tested).square().sum().sqrt() / tested.sum())
    return Acceptance(sum(map(len, texts)), int(accepted.sum()), alpha, error)


def rounds_as_vllm(pair, ids: torch.Tensor, sampling: sl.Sampling, draft: sl.Sampling, seed: int) -> list:
    """vLLM draws the first token with the prompt, and drafts from the second on; all its rounds are whole."""
    first = sl.autoregressive(pair.target, ids, 1, sampling=sampling, generator=2 * seed)
    options = {"gamma": GAMMA, "sampling": sampling, "draft_sampling": draft, "generator": 2 * seed + 1}
    rounds, written = [], 1
    for r in sl.speculative_rounds(pair.target, pair.draft, first.ids, NEW + GAMMA + 1, **options):
        rounds.append(r)
        written += len(r.tokens)
        if written >= NEW:
            return rounds
    raise AssertionError("the budget ended before the text")


class Ours:
    """Of the embedded pair, float32; probabilities in float64."""

    def __init__(self):
        self.pair = sl.load_pair("tiny").fast()
        self.prompts = [self.pair.encode(text)[0].tolist() for text in BEGINNINGS]
        self.greedy = [
            sl.autoregressive(self.pair.target, torch.tensor([ids]), NEW, sampling=sl.Sampling(0)).tokens.tolist()
            for ids in self.prompts
        ]

    def accepts(self, temperature: float, greedy_draft: bool) -> Acceptance:
        """Over all beginnings, at temperature 1 with `SEEDS` texts of each."""
        sampling = sl.Sampling(temperature)
        draft = sl.Sampling(0) if greedy_draft else sampling
        prompts = [torch.tensor([ids]) for ids in self.prompts for _ in range(SEEDS if temperature else 1)]
        # A seed for each text: those of one seed share their uniforms, and their errors would not average out.
        return acceptance([rounds_as_vllm(self.pair, x, sampling, draft, seed) for seed, x in enumerate(prompts)])


class Exact:
    """The target's probabilities of the first three tokens, at one temperature, as far as `samples` texts can tell."""

    def __init__(self, temperature: float, samples: int):
        pair = sl.load_pair("tiny", dtype="float64")
        self.prompt = pair.encode(REPEATING)[0].tolist()
        self.least, self.samples = LEAST / samples, samples
        self.next = {(): {}}  # prefix -> next token -> probability, of the prefixes that are likely enough
        reach = {(): 1.0}
        for _ in range(3):
            found = self.after(pair.target, list(reach), temperature)
            self.next |= dict(zip(reach, found, strict=True))
            longer = {(*x, t): reach[x] * p for x in reach for t, p in self.next[x].items()}
            reach = {x: p for x, p in longer.items() if p >= self.least}
        self.texts = longer | {OTHER: max(0.0, 1 - sum(longer.values()))}

    def after(self, model, prefixes: list[tuple], temperature: float) -> list[dict[int, float]]:
        found = []
        for start in range(0, len(prefixes), 64):
            ids = torch.tensor([self.prompt + list(x) for x in prefixes[start : start + 64]])
            with torch.no_grad():
                p = (model(ids).logits[:, -1] / temperature).softmax(-1)
            found += [dict(enumerate(row)) for row in p.tolist()]
        return found

    def tests(self, texts: list[list[int]]) -> dict[str, Result]:
        """The first token; the second given the first; the first three together."""
        first = goodness_of_fit(Counter(t[0] for t in texts), self.next[()])
        statistic, d = 0.0, 0
        for token in sorted({t[0] for t in texts if (t[0],) in self.next}):
            one = goodness_of_fit(Counter(t[1] for t in texts if t[0] == token), self.next[(token,)])
            statistic, d = statistic + one.statistic, d + one.d
        second = Result(statistic, d, float(p_value(torch.tensor(statistic, dtype=torch.float64), d)))
        three = Counter(tuple(t[:3]) for t in texts)
        listed = Counter({x: n for x, n in three.items() if x in self.texts})
        listed[OTHER] += sum(n for x, n in three.items() if x not in self.texts)
        return {"first": first, "second": second, "three": goodness_of_fit(listed, self.texts)}


def in_sigma(found: float, ours: Acceptance) -> float:
    """How many standard errors lie between an alpha and ours, both of as many texts."""
    return (found - ours.alpha) / (math.sqrt(2) * ours.error)
