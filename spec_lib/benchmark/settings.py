"""What can be measured, and at which setting: variants, factors of a sweep, gamma, length, sampling and prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from .. import protocols
from ..cache import as_model
from ..coupling import SharedNoise
from ..drafters import EarlyExit, NGram, Tree, shipped_head
from ..numbers import at_least_one
from ..pairs import Pair
from ..sampling import Sampling
from ..trees import best_tree

TARGET, DRAFT, GOOGLE = "target alone", "draft alone", "speculative, google"
RULES = {GOOGLE: "google", "speculative, deepmind": "deepmind"}
THEIRS = ("transformers", "transformers, assisted")
VARIANTS = (TARGET, DRAFT, *RULES, *THEIRS)  # the variants that are timed side by side, with any pair
OWN_TARGET, OWN_DRAFT, OWN = "target alone, own pass", "draft alone, own pass", "speculative, own pass"
FAST = {OWN_TARGET: TARGET, OWN_DRAFT: DRAFT, OWN: GOOGLE}  # on `pair.fast()`: the loop that is run there
ALL = (TARGET, DRAFT, *RULES, *FAST, *THEIRS)  # with a pair of GPT-2's architecture


@dataclass(frozen=True)
class Plug:
    """What a speculative variant plugs into `speculative`, beyond the pair's draft model and the usual rule.

    draft: pair -> the model or drafter that drafts; ValueError, in a sentence, where that pair has none.  rule: as in
    `speculative`.  randomness: seed -> generator.  gamma: draft tokens a round; None: the setting's.
    """

    draft: Callable[[Pair], object] = lambda pair: pair.draft
    rule: str | protocols.Rule | None = None
    randomness: Callable[[int], object] = int
    gamma: int | None = None


DRAFTERS = {  # by the names of the command line: pair -> drafter; "exit" and "head" need `pair.fast()`
    "model": Plug.draft,
    "ngram": lambda pair: NGram(),
    "exit": lambda pair: EarlyExit(max(1, 2 * len(pair.target.blocks) // 3)),
    "head": lambda pair: shipped_head(pair.target),
}
TREE = best_tree((0.66, 0.09, 0.05, 0.03), 16)  # how often the head's first, second, ... candidate is accepted
MORE = {  # further variants, all on `pair.fast()`, which no recording holds
    "block verification, own pass": Plug(rule="block"),
    "shared noise, own pass": Plug(randomness=SharedNoise),
    "prompt lookup, own pass": Plug(DRAFTERS["ngram"]),
    "early exit, own pass": Plug(DRAFTERS["exit"]),
    "trained head, own pass": Plug(DRAFTERS["head"]),
    "tree of 16, own pass": Plug(lambda pair: Tree(shipped_head(pair.target), TREE), gamma=len(TREE)),
}
SPECULATIVE = (*RULES, OWN, *MORE)  # those whose rounds are counted
# The plain loop on the same forward passes: what speculation is to be faster than.
PLAIN = {name: TARGET for name in VARIANTS} | {name: OWN_TARGET for name in (*FAST, *MORE)}
PLAIN |= {name: THEIRS[0] for name in THEIRS}
DRAFTS = {TARGET: DRAFT, OWN_TARGET: OWN_DRAFT}  # a plain loop -> the draft's, on the same forward passes
FACTORS = {  # of a sweep: the field of `Setting` that it varies, and the values unless others are given
    "gamma": ("gamma", (1, 2, 4, 8)),
    "length": ("new", (50, 100, 200, 500)),
    "temperature": ("temperature", (0.0, 0.3, 0.7, 1.0, 1.5)),
    "prompt": ("prompt", None),  # the pair's own prompts
    "draft": (None, None),  # the embedded pair's three
}
BATCH_SIZES, BATCH_GAMMAS, BATCH_NEW = (1, 2, 4, 8, 16, 32), (1, 2, 4, 6), 64  # of a sweep of batch sizes


@dataclass(frozen=True)
class Setting:
    """What an evaluation is taken at.  ValueError out of range.

    gamma: draft tokens a round.  new: tokens to write, more than gamma, so that a round can run its course.
    temperature, top_k, top_p: of `Sampling`.  prompt: a key of pair.prompts or a text; None: the pair's in turn.
    """

    gamma: int = 4
    new: int = 100
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    prompt: str | None = None

    def __post_init__(self):
        Sampling(self.temperature, self.top_k, self.top_p)  # refuses what it cannot do
        if at_least_one("new", self.new) <= at_least_one("gamma", self.gamma):
            raise ValueError(f"{self.new} new tokens are no full round at gamma {self.gamma}: ask for more of them")
        if not isinstance(self.prompt, str | None):
            raise ValueError(f"prompt must be a text or the name of one of the pair's, got {self.prompt!r}")

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


def can_be_fast(pair: Pair) -> Pair | None:
    """`pair.fast()`, or None where it refuses."""
    try:
        return pair.fast()
    except ValueError:
        return None


def own_setting(setting: Setting, variant: str, plugs: Mapping[str, Plug] = MORE) -> Setting:
    """The setting at the variant's own gamma, where it has one; ValueError where that leaves no full round."""
    gamma = plugs[variant].gamma if variant in plugs else None
    try:
        return setting if gamma is None else replace(setting, gamma=gamma)
    except ValueError as error:  # the reader may have asked for another gamma, which this variant does not use
        raise ValueError(f"{variant}: {error}") from None


def prompts_for(
    pair: Pair, setting: Setting, variants: Sequence[str] = VARIANTS, plugs: Mapping[str, Plug] = MORE
) -> list[torch.Tensor]:
    """The prompts' ids, each (1, length).  plugs: the variants there are beside those of `ALL`.

    ValueError for an unknown variant, for one on our own forward pass where `pair.fast()` refuses, for one whose own
    gamma needs longer texts, and for a context that is too short: the target's, and where it is used the draft model's.
    """
    known = (*ALL, *plugs)
    if not variants or set(variants) - set(known):
        raise ValueError(f"variants must be some of {'; '.join(known)}: got {'; '.join(map(str, variants)) or 'none'}")
    for variant in variants:
        own_setting(setting, variant, plugs)
    if set(variants) & {*FAST, *MORE}:
        pair.fast()
    texts = pair.prompts.values() if setting.prompt is None else [pair.prompts.get(setting.prompt, setting.prompt)]
    prompts = [pair.encode(text) for text in texts]
    longest = max(ids.shape[1] for ids in prompts)
    alone = {TARGET, OWN_TARGET, THEIRS[0], *(name for name, plug in plugs.items() if plug.draft is not Plug.draft)}
    models = {"target": pair.target} if set(variants) <= alone else {"target": pair.target, "draft": pair.draft}
    for name, model in models.items():
        most = as_model(model).max_length
        if most is not None and longest + setting.new > most:
            raise ValueError(f"{longest} prompt tokens and {setting.new} new ones do not fit the {name}'s {most}")
    return prompts
