"""The loops: one token a pass, or a draft verified in one pass.

Notebook 01 derives `autoregressive`, notebooks 04 to 06 the speculative round.  Everything that shows or measures
speculation consumes the `Round`s that `speculative_rounds` yields.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from .cache import CachedModel, as_scored
from .drafting import as_drafter
from .numbers import as_int
from .sampling import Sampling, as_source
from .verification import RULES


class CacheLengths(NamedTuple):
    """Tokens in a cache before a round, when it was fullest, and after the rollback."""

    before: int
    filled: int
    after: int


@dataclass(eq=False)  # tensors have no single truth: two rounds are equal if they are the same one
class Round:
    """What one target pass did.

    drafted: (k,) int64 on the CPU.  accepted: how many of them were emitted.  token: what the target added; None
    only when an accepted draft token was EOS.  origin: "resampled" (from the residual, after a rejection) | "bonus"
    (all accepted) | "plain" (nothing was drafted) | None (no token).  cut: the round could not run its course: fewer
    than gamma tokens were drafted, or EOS fell inside it; it stays out of fits.
    With trace=True also, on the CPU: uniforms (k,), p (k + 1, vocab), q (k, vocab), overlap (k + 1,) = sum min(p, q)
    (NaN where the drafter has no law), and what each cache held (`CacheLengths`; positions fed = filled - before).
    """

    drafted: torch.Tensor
    accepted: int
    token: int | None
    origin: str | None
    cut: bool = False
    uniforms: torch.Tensor | None = None
    p: torch.Tensor | None = None
    q: torch.Tensor | None = None
    overlap: torch.Tensor | None = None
    target_cache: CacheLengths | None = None
    draft_cache: CacheLengths | None = None

    @property
    def tokens(self) -> list[int]:
        """The tokens that this round added to the text, in order."""
        return self.drafted[: self.accepted].tolist() + ([] if self.token is None else [self.token])

    @property
    def rejected(self) -> int | None:
        """The rejected draft token, or None."""
        return int(self.drafted[self.accepted]) if self.origin == "resampled" else None


@dataclass(eq=False)
class Generation:
    """A finished text.  tokens: (new,) int64 on the CPU.  ids: (1, prompt + new) on the prompt's device, without
    the padding that an attention mask hid.
    rounds: [] for autoregressive.  stop_reason: "eos" | "length"."""

    tokens: torch.Tensor
    ids: torch.Tensor
    rounds: list[Round] = field(default_factory=list)
    stop_reason: str = "length"


@dataclass(frozen=True)
class Summary:
    """Counts over rounds, and the three numbers that are often confused (each NaN where it is undefined).

    alpha: acceptance rate, accepted / (accepted + rejected): drafts behind a rejection were never tried.
    mean_overlap: mean of sum min(p, q) over the tried positions (traced rounds only).
    tokens_per_pass: emitted tokens per target pass.
    share: accepted / drafted, the misleading one: it falls with gamma although nothing got worse.
    """

    passes: int
    emitted: int
    drafted: int
    accepted: int
    rejected: int
    bonus: int
    plain: int
    alpha: float
    mean_overlap: float
    tokens_per_pass: float
    share: float


def summarize(rounds: Iterable[Round]) -> Summary:
    """The one home of a generation's statistics; they count what was emitted.  Takes a `Generation` too.
    Notebook 08."""
    rounds = list(getattr(rounds, "rounds", rounds))
    origins = [r.origin for r in rounds]
    accepted = sum(r.accepted for r in rounds)
    rejected, drafted = origins.count("resampled"), sum(len(r.drafted) for r in rounds)
    emitted = accepted + sum(r.token is not None for r in rounds)
    overlaps = [
        x for r in rounds if r.overlap is not None for x in r.overlap[: r.accepted + (r.rejected is not None)].tolist()
    ]

    def ratio(a: float, b: float) -> float:
        return a / b if b else math.nan

    return Summary(
        passes=len(rounds),
        emitted=emitted,
        drafted=drafted,
        accepted=accepted,
        rejected=rejected,
        bonus=origins.count("bonus"),
        plain=origins.count("plain"),
        alpha=ratio(accepted, accepted + rejected),
        mean_overlap=ratio(sum(overlaps), len(overlaps)),
        tokens_per_pass=ratio(emitted, len(rounds)),
        share=ratio(accepted, drafted),
    )


def autoregressive(
    target,
    ids: torch.Tensor,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | None = None,
    attention_mask: torch.Tensor | None = None,
) -> Generation:
    """Write with the target alone: one token a pass, with a KV cache.  Notebook 01.

    target: a transformers model or a scored model.  ids: (1, length) or (length,) int64.  Arguments otherwise as in
    `speculative_rounds`, ValueErrors too.  Without an EOS to look for, the device is asked for its tokens only once.
    """
    sampling = sampling or Sampling()
    scored = as_scored(target)
    ids, eos = _check(scored, ids, max_new_tokens, sampling, eos_token_id, attention_mask)
    source = as_source(generator, scored.device)
    tokens, flags = [], []
    with torch.no_grad(), _evaluating(_training([target])):
        fed = ids[0]
        for i in range(max_new_tokens):
            p = sampling.probabilities(scored.feed(fed, 1)[-1])
            fed = source.draw(p, ids.shape[1] + i)
            tokens.append(fed)
            flags.append(p.sum())
            if eos and int(fed) in eos:
                break
        new = torch.cat(tokens).cpu() if tokens else torch.empty(0, dtype=torch.int64)
        bad = torch.stack(flags).isnan().tolist() if flags else []
    if any(bad):
        raise _not_a_number("target", bad.index(True), ids.shape[1] + bad.index(True))
    stopped = bool(eos) and len(new) > 0 and int(new[-1]) in eos
    return Generation(new, torch.cat([ids, new[None].to(ids.device)], 1), [], "eos" if stopped else "length")


def speculative(target, draft, ids: torch.Tensor, max_new_tokens: int, **options) -> Generation:
    """Write with a draft and a target: exactly the target's law, in fewer of its passes.

    All arguments and errors are those of `speculative_rounds`.  Chen et al., Algorithm 2; Leviathan et al.,
    Algorithm 1 in a loop.  Notebooks 04 to 06.
    """
    job = _Job(target, draft, ids, max_new_tokens, **options)
    rounds = list(job)
    new = torch.tensor([t for r in rounds for t in r.tokens], dtype=torch.int64)
    return Generation(new, torch.cat([job.ids, new[None].to(job.ids.device)], 1), rounds, job.stop_reason)


def speculative_rounds(target, draft, ids: torch.Tensor, max_new_tokens: int, **options) -> Iterator[Round]:
    """The same as `speculative`, each `Round` yielded as it happens.

    target: a transformers causal language model or a scored model.  draft: one that shares its vocabulary, or any
    drafter.  ids: the prompt, (1, length) or (length,) int64.  Options:

    gamma: drafted tokens a round, at least 1 (Chen: K); fewer where the budget or a context ends.
    rule: "google" (all at once; at most one host synchronisation a round) | "deepmind" (one after the other; same
        tokens from the same uniforms) | any callable like `verify_google`.
    sampling: the target's `Sampling`; draft_sampling: the draft's own (default: the same).  Exact either way.
    eos_token_id: int, list or None (never stop).
    generator: torch.Generator, int seed, or a source (`draw`, `uniforms`); all uniforms of a round are drawn before
        it is judged, so that one seed gives one text under both rules.
    trace: keep laws, uniforms and cache lengths in each Round.
    attention_mask: (1, length) of ones, with zeros at the left only: such padding is taken off.

    The law is the target's as far as it scores a token alike alone and in a block: up to rounding in float32, less
    finely in 16 bit, and not at all where scales are chosen anew for each pass (dynamic quantization).

    Raises ValueError, before any work, for a batch, an empty prompt, a token outside the vocabulary, a text that the
    target's context cannot hold or that crosses a change of its positions, a cache that cannot be rolled back, or an
    option out of range; in a round, ValueError naming model and round when logits are NaN.
    """
    return iter(_Job(target, draft, ids, max_new_tokens, **options))  # checked here, not at the first `next`


class _Job:
    """One speculative generation, checked on construction, run by iterating."""

    def __init__(
        self,
        target,
        draft,
        ids,
        max_new_tokens,
        gamma=4,
        rule="google",
        sampling=None,
        draft_sampling=None,
        eos_token_id=None,
        generator=None,
        trace=False,
        attention_mask=None,
    ):
        if (as_int(gamma) or 0) < 1:
            raise ValueError(f"gamma, the drafted tokens a round, must be a whole number of at least 1, got {gamma!r}")
        if not callable(rule) and not (isinstance(rule, str) and rule in RULES):
            raise ValueError(f'rule must be "google", "deepmind" or a function like verify_google, got {rule!r}')
        self.gamma, self.rule, self.trace = as_int(gamma), rule if callable(rule) else RULES[rule], trace
        self.sampling = sampling or Sampling()
        self.draft_sampling = draft_sampling or self.sampling
        self.target = as_scored(target)
        self.ids, self.eos = _check(self.target, ids, max_new_tokens, self.sampling, eos_token_id, attention_mask)
        if not isinstance(self.draft_sampling, Sampling):
            raise ValueError(f"draft_sampling must be a spec_lib.Sampling, got {self.draft_sampling!r}")
        self.max_new_tokens, self.stop_reason = as_int(max_new_tokens), "length"
        self.drafter = as_drafter(draft, self.target.vocab)
        model = getattr(self.drafter, "model", None)
        self.models, self.modes, self.training = [target, model], None, []
        for scored in (self.target, as_scored(model) if isinstance(model, torch.nn.Module) else model):
            if isinstance(scored, CachedModel):
                scored.require_rollback(self.ids.shape[1] + self.max_new_tokens)
                if scored.device != self.target.device:
                    raise ValueError(
                        f"the target is on {self.target.device} and the draft on {scored.device}: move one"
                    )
        if self.target is model and not hasattr(model, "fresh"):
            raise ValueError(
                "target and draft are one scored model with one cache: give it a fresh() that returns it with nothing "
                "fed, or pass two objects."
            )
        self.source = as_source(generator, self.target.device)

    def __iter__(self) -> Iterator[Round]:
        # Gradients and training mode are switched per step, not around a `yield`: the caller runs in between.
        size, left = self.ids.shape[1], self.max_new_tokens
        if left == 0:
            return
        with self._quiet():
            session = self.drafter.start(self.ids[0], self.draft_sampling, self.source)
            if size > 1:
                self.target.feed(self.ids[0, :-1], 1)  # the prompt; its last token opens the first round
        last, number = self.ids[0, -1:], 0
        while left:
            with self._quiet():
                done, last = self._round(session, last, size, left, number)
            size, left, number = size + len(done.tokens), left - len(done.tokens), number + 1
            if self.eos and done.tokens[-1] in self.eos:
                self.stop_reason, left = "eos", 0
            yield done

    @contextlib.contextmanager
    def _quiet(self):
        modes = [_training_flag(model) for model in self.models]
        if modes != self.modes:  # at the first step, and where the caller switched a model between two rounds
            self.modes, self.training = modes, _training(self.models)
        with torch.no_grad(), _evaluating(self.training):
            yield

    def _round(self, session, last: torch.Tensor, size: int, left: int, number: int) -> tuple[Round, torch.Tensor]:
        """Draft, score, judge, roll back.  last: (1,), the text's last token; size: tokens in the text."""
        target, k = self.target, min(self.gamma, left - 1)
        # The pass feeds positions up to size - 1 + k, at most the last one that `_check` found room for.
        before = (target.length, _length(session))
        if before[0] != size - 1:
            raise ValueError(
                f"the target holds {before[0]} tokens instead of {size - 1}: another text was read with it between two "
                "rounds; give it a fresh(), so that each text has a cache of its own."
            )

        draft = session.propose(k)
        x, q = draft.tokens, draft.q
        if len(x) > k or (q is not None and len(q) != len(x)):
            raise ValueError(
                f"the drafter was asked for at most {k} tokens and gave {len(x)}"
                + ("" if q is None else f" with {len(q)} laws")
            )
        if q is not None and q.shape[1] > target.vocab:
            raise _too_wide(q.shape[1], target.vocab)
        k, given = len(x), x.to(target.device, torch.int64)
        x = given.clamp(0, target.vocab - 1)  # a wrong one is reported below, without waiting for the device here
        p = self.sampling.probabilities(target.feed(torch.cat([last, x])))  # (k + 1, vocab)
        q = _fit(q, x, p)
        u = self.source.uniforms(k, size)
        n, law = self.rule(p, q, x, u)
        token = self.source.draw(law, size + n)  # (1,)

        # One transfer brings all that the host needs; the drafts and the flags ride along.
        n = torch.as_tensor(n, device=p.device).view(1)
        flags = torch.stack([p.sum(), q.sum(), law.sum()]).isnan()
        n_, token_, bad_p, bad_q, bad_law, *drafted = torch.cat([n, token, flags.long(), given]).tolist()
        if any(not 0 <= t < target.vocab for t in drafted):
            raise ValueError(
                f"the drafter gave {drafted} in round {number + 1}: the target's tokens are 0 to {target.vocab - 1}"
            )
        if bad_p or bad_q:
            raise _not_a_number("draft" if bad_q else "target", number, size)
        if bad_law or not 0 <= n_ <= k:
            gave = "a law with NaN" if bad_law else f"n = {n_} of {k} drafted tokens"
            raise ValueError(f"the rule gave {gave} in round {number + 1}: it must return 0 <= n <= k and a law")

        emitted = [*drafted[:n_], token_]
        stop = next((i for i, t in enumerate(emitted) if t in self.eos), None)
        inside = stop is not None and stop < n_  # an accepted draft ended the text: nothing follows it
        done = Round(
            drafted=torch.tensor(drafted, dtype=torch.int64),
            accepted=stop + 1 if inside else n_,
            token=None if inside else token_,
            origin=None if inside else "plain" if k == 0 else "bonus" if n_ == k else "resampled",
            cut=k < self.gamma or inside,
        )
        full = (target.length, _length(session))
        if self.trace:
            self._keep(done, session, p, q, u)
        if inside:  # the text ends in a draft token: to both models, the last one added
            n_, token = stop, x[stop : stop + 1]
        target.rollback(size + n_)  # drops gamma - n rejected positions; `token` was never fed
        session.accept(n_, token)  # the draft drops gamma - 1 - n: it never read its own last token
        if self.trace:
            done.target_cache = CacheLengths(before[0], full[0], target.length)
            if full[1] is not None:
                done.draft_cache = CacheLengths(before[1], full[1], _length(session))
        return done, token

    @staticmethod
    def _keep(done: Round, session, p, q, u) -> None:
        k = len(done.drafted)
        ahead = session.look_ahead() if hasattr(session, "look_ahead") else None
        beyond = p.new_full((1,), math.nan) if ahead is None else torch.minimum(p[k], ahead).sum().view(1)
        done.overlap = torch.cat([torch.minimum(p[:k], q).sum(-1), beyond]).cpu()
        done.uniforms, done.p, done.q = u.cpu(), p.cpu(), q.cpu()


speculative.__signature__ = speculative_rounds.__signature__ = inspect.signature(_Job)  # for help() and editors


def _length(session) -> int | None:
    return getattr(getattr(session, "model", None), "length", None)


def _fit(q: torch.Tensor | None, x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The draft's laws as (k, vocab of p): one-hot where it was certain, zeros where p is wider."""
    if q is None:
        return torch.nn.functional.one_hot(x, p.shape[1]).to(p.dtype)
    if q.shape[1] > p.shape[1]:
        raise _too_wide(q.shape[1], p.shape[1])
    return torch.nn.functional.pad(q, (0, p.shape[1] - q.shape[1])).to(p.dtype) if q.shape[1] < p.shape[1] else q


def _too_wide(ours: int, theirs: int) -> ValueError:
    return ValueError(
        f"the drafter's laws have {ours} tokens and the target's {theirs}: cut the draft's logits to the target's "
        "width before drawing (ModelDrafter(model, vocab=...) does)"
    )


def _training_flag(model) -> bool:
    return bool(getattr(getattr(model, "model", model), "training", False))


def _training(models) -> list[torch.nn.Module]:
    """The modules that are in training mode: a walk through the model, so not once a round."""
    models = [model.model if isinstance(model, CachedModel) else model for model in models]
    return [m for model in models if isinstance(model, torch.nn.Module) for m in model.modules() if m.training]


@contextlib.contextmanager
def _evaluating(training: list[torch.nn.Module]):
    """These modules in eval mode, and each one's own flag restored."""
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _not_a_number(model: str, number: int, position: int) -> ValueError:
    return ValueError(
        f"the {model} model gave NaN logits in round {number + 1} (text position {position}): its weights or its "
        "16-bit arithmetic overflowed; load it in float32 and try again."
    )


def _check(scored, ids, max_new_tokens, sampling, eos_token_id, mask) -> tuple[torch.Tensor, frozenset[int]]:
    """The prompt as (1, length) on the model's device, and the EOS ids; ValueError in one sentence otherwise."""
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling must be a spec_lib.Sampling, got {sampling!r}")
    if (as_int(max_new_tokens) is None) or as_int(max_new_tokens) < 0:
        raise ValueError(f"max_new_tokens must be a whole number of at least 0, got {max_new_tokens!r}")
    if isinstance(ids, list):
        try:
            ids = torch.tensor(ids, dtype=None if ids else torch.int64)
        except (TypeError, ValueError, RuntimeError, OverflowError):  # words, None, rows of different length
            raise ValueError(f"ids must be token ids, whole numbers in one list, got {reprlib.repr(ids)}") from None
    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.dtype == torch.bool:
        got = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"ids must be a tensor of token ids, (1, length) as pair.encode returns it, got {got}")
    if ids.ndim == 1:
        ids = ids[None]
    if ids.ndim != 2 or ids.shape[0] != 1:
        raise ValueError(f"the batch size must be 1, one prompt of shape (1, length); got shape {tuple(ids.shape)}")
    if mask is not None:
        mask = torch.as_tensor(mask)
        mask = mask[None] if mask.ndim == 1 else mask
        if mask.shape != ids.shape:
            raise ValueError(f"attention_mask {tuple(mask.shape)} does not fit ids {tuple(ids.shape)}")
        keep = int((mask[0] != 0).sum())
        if not bool((mask[0, ids.shape[1] - keep :] != 0).all()):
            raise ValueError(
                "attention_mask may hide tokens at the left end only (padding); take the others out of ids"
            )
        ids = ids[:, ids.shape[1] - keep :]
    if ids.shape[1] == 0:
        raise ValueError("the prompt is empty: pair.encode('') gives the tokenizer's start token where it has one")
    ids = ids.to(torch.int64)  # the smallest of unsigned numbers is not implemented
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= scored.vocab:
        raise ValueError(f"token id {low if low < 0 else high} is outside the target's vocabulary of {scored.vocab}")
    _check_padding(scored, ids, mask)
    new = as_int(max_new_tokens)
    longest = ids.shape[1] + new - 1  # the last token is drawn, never fed
    if scored.max_length is not None and longest > scored.max_length:
        most = scored.max_length - ids.shape[1] + 1
        raise ValueError(
            f"{ids.shape[1]} prompt tokens and {new} new ones need {longest} positions and the target has "
            f"{scored.max_length}: shorten the prompt{f' or ask for at most {most} new tokens' if most > 0 else ''}."
        )
    if hasattr(scored, "require_one_law"):
        scored.require_one_law(ids.shape[1], longest)
    several = isinstance(eos_token_id, (list, tuple, set, frozenset)) or getattr(eos_token_id, "ndim", 0) == 1
    eos = [] if eos_token_id is None else [as_int(e) for e in (eos_token_id if several else [eos_token_id])]
    if None in eos:
        raise ValueError(f"eos_token_id must be a token id, a list of them or None, got {eos_token_id!r}")
    if any(not 0 <= e < scored.vocab for e in eos):
        raise ValueError(f"eos_token_id {eos_token_id!r} is outside the target's vocabulary of {scored.vocab}")
    return ids.to(scored.device), frozenset(eos)


def _check_padding(scored, ids, mask) -> None:
    config = getattr(getattr(scored, "model", None), "config", None)
    pad = getattr(config, "pad_token_id", None)
    if (
        mask is None
        and pad is not None
        and int(ids[0, 0]) == pad
        and pad not in (getattr(config, "bos_token_id", None), getattr(config, "eos_token_id", None))
    ):
        raise ValueError(f"the prompt begins with the padding token {pad}: pass its attention_mask, or take it off")
