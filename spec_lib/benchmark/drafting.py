"""What a drafter is worth: how much of it is accepted, and what its tokens cost.  Notebook 10."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch

from ..decoding import speculative
from ..drafting import as_drafter
from ..numbers import at_least_one, described
from ..records import Round
from .timing import clock


class ClockedDrafter:
    """A drafter that notes in `spent` (seconds, tokens) of each of its proposals, those of no token too."""

    def __init__(self, draft, spent: list[tuple[float, int]]):
        self.inside, self.spent = as_drafter(draft), spent

    def __getattr__(self, name: str):
        return getattr(self.inside, name)

    def start(self, ids, sampling, randomness, target):
        return _ClockedSession(self.inside.start(ids, sampling, randomness, target), self.spent, target.device)


class _ClockedSession:
    def __init__(self, session, spent, device):
        self.inside, self.spent, self.device = session, spent, device

    def __getattr__(self, name: str):
        return getattr(self.inside, name)

    def propose(self, k: int):
        made = []
        seconds = clock(lambda: made.append(self.inside.propose(k)), self.device)
        self.spent.append((seconds, len(made[0].tokens)))
        return made[0]


def drafting_cost(
    target, draft, prompts: Sequence[torch.Tensor], new: int, gamma: int = 4, texts: int = 8, **options
) -> tuple[list[Round], float]:
    """The rounds of `texts` texts of `new` tokens, and the median seconds that a whole draft of gamma tokens took.

    prompts: taken in turn; text i is written with seed i.  The seconds are NaN where no draft was whole; a GPU has
    finished its work before and after each.  options: as for `speculative`.  ValueError for no prompts or no texts.
    """
    if isinstance(prompts, torch.Tensor) or not len(prompts):
        raise ValueError(f"prompts must be a list of at least one prompt, ids (1, length), got {described(prompts)}")
    spent: list[tuple[float, int]] = []
    rounds = []
    for seed in range(at_least_one("texts", texts)):
        ids = prompts[seed % len(prompts)]
        drafter = ClockedDrafter(draft, spent)
        rounds += speculative(target, drafter, ids, new, gamma=gamma, generator=seed, **options).rounds
    whole = [seconds for seconds, tokens in spent if tokens == gamma]
    return rounds, median(whole) if whole else float("nan")
