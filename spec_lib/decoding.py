"""The loops: one token per forward pass, or a draft verified in one pass.

Notebook 01 derives `autoregressive`, notebooks 04 to 06 the speculative round.  What may be plugged in is in
`protocols`, what is refused in `arguments`; all that shows or measures speculation reads the `Round`s that are yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch

from . import arguments, protocols
from .cache import as_model
from .drafting import as_drafter, as_wide_as
from .records import Generation, Round
from .sampling import Sampling, as_randomness
from .tracing import Tracer


def autoregressive(
    target: torch.nn.Module | protocols.Model,
    ids: torch.Tensor,
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | protocols.Randomness | None = None,
    attention_mask: torch.Tensor | None = None,
) -> Generation:
    """Write with the target alone: one token per forward pass, with a KV cache.  Notebook 01.

    target: a transformers model or a `Model`.  ids: (1, length) or (length,) int64.  Arguments otherwise as in
    `speculative_rounds`, ValueErrors too, but no rollback is needed, and NaN logits are reported when the text is done.
    Without an EOS to look for, the tokens reach the host once, at the end.
    """
    sampling, target = arguments.a_sampling("sampling", sampling), as_model(target)
    ids, new, eos = arguments.a_text(target, ids, max_new_tokens, eos_token_id, attention_mask)
    randomness, size = as_randomness(generator, target.device), ids.shape[1]
    tokens, sums, unread = [ids[0, :0]], [], ids[0]
    with torch.no_grad():
        for position in range(size, size + new):
            p = sampling.probabilities(target.feed(unread, 1)[-1])  # (vocab,)
            unread = randomness.draw(p, position)
            tokens.append(unread)
            sums.append(p.sum())
            if eos and int(unread) in eos:
                break
    written = torch.cat(tokens)
    bad = torch.stack(sums).isnan().tolist() if sums else []
    if any(bad):
        raise arguments.not_a_number("target", bad.index(True) + 1, size + bad.index(True))
    host = written.cpu()
    ended = bool(eos) and len(host) > 0 and int(host[-1]) in eos
    return Generation(host, torch.cat([ids, written[None]], 1), [], "eos" if ended else "length")


def speculative(
    target: torch.nn.Module | protocols.Model,
    draft: torch.nn.Module | protocols.Model | protocols.Drafter,
    ids: torch.Tensor,
    max_new_tokens: int,
    *,
    gamma: int | Callable[[list[Round]], int] = 4,
    rule: str | protocols.Rule = "google",
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | protocols.Randomness | None = None,
    trace: bool | Iterable[str] = False,
    attention_mask: torch.Tensor | None = None,
) -> Generation:
    """Write with a draft and a target: exactly the target's distribution, in fewer of its forward passes.

    All arguments and errors are those of `speculative_rounds`.  Chen et al., Algorithm 2; Leviathan et al.,
    Algorithm 1 in a loop.  Notebooks 04 to 06.
    """
    writer = Writer(target, draft, ids, max_new_tokens, gamma, rule, sampling, draft_sampling, eos_token_id, generator,
                    trace, attention_mask)  # fmt: skip
    rounds = list(writer)
    new = torch.tensor([t for r in rounds for t in r.tokens], dtype=torch.int64, device="cpu")
    return Generation(new, torch.cat([writer.ids, new[None].to(writer.ids.device)], 1), rounds, writer.stop_reason)


def speculative_rounds(
    target: torch.nn.Module | protocols.Model,
    draft: torch.nn.Module | protocols.Model | protocols.Drafter,
    ids: torch.Tensor,
    max_new_tokens: int,
    *,
    gamma: int | Callable[[list[Round]], int] = 4,
    rule: str | protocols.Rule = "google",
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | protocols.Randomness | None = None,
    trace: bool | Iterable[str] = False,
    attention_mask: torch.Tensor | None = None,
) -> Iterator[Round]:
    """The same as `speculative`, each `Round` yielded as it happens.

    target: a transformers causal language model or a `Model`.  draft: one that shares its vocabulary, or a `Drafter`.
    ids: the prompt, (1, length) or (length,) int64.  Options:

    gamma: drafted tokens a round, at least 1 (Chen: K); fewer where the budget or a context ends, or the drafter
        proposes fewer.  Or a function that is given the rounds so far and says how many to draft next (0: none).
    rule: "google" (all at once; at most one host-device synchronisation a round) | "deepmind" (one after the other;
        same tokens from the same uniforms) | any `Rule`.
    sampling: the target's `Sampling`; draft_sampling: the draft's own (default: the same).  Exact either way.
    eos_token_id: int, list or None (never stop).
    generator: torch.Generator, int seed, or a `Randomness`; all uniforms of a round are drawn before it is verified,
        so that one seed gives one text under both rules.
    trace: what each Round keeps: True (all), or some of "distributions" (p, q and the uniforms), "overlap", "caches".
    attention_mask: (1, length) of ones, with zeros at the left only: such padding is taken off.

    The distribution is the target's as far as it scores a token alike alone and in a block: up to rounding in float32,
    less finely in 16 bit, and not at all where scales are chosen anew for each pass (dynamic quantization).

    Raises ValueError before the text is read, for a batch, an empty prompt, a token outside the vocabulary, a text that
    the target's context cannot hold or that crosses a change of its positions, a model that is not causal (each is run
    once on four tokens), a cache that cannot be rolled back or is shared, a draft on another device, an option out of
    range; in a round, for NaN logits, what a plug gives against `protocols`, and a target that was used elsewhere.
    """
    return iter(Writer(target, draft, ids, max_new_tokens, gamma, rule, sampling, draft_sampling, eos_token_id,
                       generator, trace, attention_mask))  # fmt: skip


class Writer:
    """One text as it is written, a round at a time: a round is `judge(target.feed(draft()))`.

    Between rounds the text has `size` tokens, of which the target's cache holds all but the `last` (1,); `left` are
    still to be written.  Checked when it is made, works when it is iterated over.

    drafted: proposed by the drafter.  accepted: the first n of them, as the rule decides.  resampled: drawn from the
    residual distribution at the position of the first rejected one.  bonus: the target's token after a full acceptance.
    """

    def __init__(self, target, draft, ids, max_new_tokens, gamma=4, rule="google", sampling=None, draft_sampling=None,
                 eos_token_id=None, generator=None, trace=False, attention_mask=None):  # fmt: skip
        self.gamma, self.rule, parts = arguments.a_gamma(gamma), arguments.a_rule(rule), arguments.a_trace(trace)
        self.sampling = arguments.a_sampling("sampling", sampling)
        self.draft_sampling = arguments.a_sampling("draft_sampling", draft_sampling, self.sampling)
        self.target, self.drafter = as_model(target), as_drafter(draft)
        self.ids, self.left, self.eos = arguments.a_text(self.target, ids, max_new_tokens, eos_token_id, attention_mask)
        self.size, self.last = self.ids.shape[1], self.ids[0, -1:]
        arguments.can_work(self.target, self.drafter, self.size + self.left - 1)
        self.randomness, self.trace = as_randomness(generator, self.target.device), Tracer(parts, self.target)
        self.stop_reason, self.number = "length", 1  # of the round to come
        self.rounds = [] if callable(gamma) else None  # kept only for whoever wants them: traces are large

    def __iter__(self) -> Iterator[Round]:
        if self.left and self.number == 1:
            with torch.no_grad():
                self.start()
        while self.left:
            with torch.no_grad():  # not around the `yield`: the caller's code runs in between
                done = self.judge(self.target.feed(self.draft()))
            yield done

    def start(self) -> None:
        """Both models read the prompt, once and all but its last token, which opens the first round."""
        self.session = self.drafter.start(self.ids[0], self.draft_sampling, self.randomness, self.target)
        if self.size > 1:
            self.target.feed(self.ids[0, :-1], 1)

    def draft(self) -> torch.Tensor:
        """1. Draft.  Returns what the target has to read: the text's last token and the k drafted ones, (k + 1,)."""
        arguments.own_cache(self.target, self.size)
        self.trace.begin(self.session)
        wanted = self.gamma(self.rounds or [])
        asked = min(wanted, self.left - 1)  # the round adds one token itself
        draft = arguments.a_draft(self.session.propose(asked), asked, self.target.vocab)  # a model's: `ModelSession`
        self.q, self.cut = draft.q, asked < wanted or draft.cut
        self.given = draft.tokens.to(self.target.device, torch.int64, non_blocking=True)
        self.x = self.given.clamp(0, self.target.vocab - 1)  # a wrong one is reported without waiting for the device
        return torch.cat([self.last, self.x])

    def judge(self, logits: torch.Tensor) -> Round:
        """Score, verify, roll back.  logits: the target's for what `draft` returned, (k + 1, vocab)."""
        # 2. Score: the target's distribution at each drafted position and one beyond, and the draft's beside it.
        p = self.sampling.probabilities(logits)  # (k + 1, vocab)
        q = as_wide_as(p, self.q, self.x)  # (k, vocab)

        # 3. Verify: the first n are accepted; the token after them is drawn from what the rule says.
        u = self.randomness.uniforms(len(self.x), self.size)
        n, distribution = self.rule(p, q, self.x, u, self.size)
        token = self.randomness.draw(distribution, self.size + n)  # (1,)
        new, done = self._fetch(n, token, p, q, distribution)  # the round's new tokens, as ints
        n = len(new) - 1
        if done.token is None:  # an accepted draft token ended the text: then that is the last one, not the target's
            token = self.x[n : n + 1]

        # 4. Roll back: of what was read, `size + n` tokens stay; `token` follows them and is still to be read.
        with self.trace.around_rollback(done, p, q, u):
            self.target.rollback(self.size + n)
            self.session.accept(n, token.clone(), list(new))

        self.last, self.size, self.left = token, self.size + n + 1, self.left - n - 1
        self.number += 1
        if new[-1] in self.eos:
            self.stop_reason, self.left = "eos", 0
        if self.rounds is not None:
            self.rounds.append(done)
        return done

    def _fetch(self, n, token, p, q, distribution) -> tuple[list[int], Round]:
        """One transfer brings all that the host needs: the new tokens, and the round.  It waits here, and (with rule
        "google", a model as drafter and no trace) nowhere else."""
        sums, chances = torch.stack([p.sum(), distribution.sum()]), q.gather(1, self.x.unsqueeze(1)).squeeze(1)
        n = n.view(1) if isinstance(n, torch.Tensor) else torch.full((1,), n, device=p.device)
        tokens = torch.cat([n, token, self.given]).to(sums.dtype)  # in one type: `cat` would copy each by itself
        k, values = len(self.x), torch.cat([tokens, sums, q.sum(1), chances]).tolist()
        n, token, *drafted = (int(x) if x % 1 == 0 else x for x in values[: k + 2])  # whole ones exact to 2**24
        kept = torch.tensor(drafted, dtype=torch.int64, device="cpu")
        arguments.a_verdict(n, token, drafted, values[k + 2 :], self.target.vocab, self.number, self.size)
        stop = next((i for i, x in enumerate(drafted[:n]) if x in self.eos), None)
        if stop is not None:  # an accepted draft token ends the text: nothing follows it
            return drafted[: stop + 1], Round(kept, stop + 1, None, None, cut=True)
        origin = "plain" if not drafted else "bonus" if n == len(drafted) else "resampled"
        return [*drafted[:n], token], Round(kept, n, token, origin, self.cut)
