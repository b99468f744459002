"""The speculative round: draft, score, verify, roll back.  Notebooks 04 to 06 derive it.

A round is all that speculation does; `decoding` has the calls around it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import answers, arguments
from .cache import as_model
from .devices import to_device
from .drafting import as_drafter, as_wide_as
from .protocols import Draft
from .records import Round
from .sampling import as_randomness
from .tracing import Tracer


class Writer:
    """One text as it is written, a round at a time: a round is `judge(score(draft()))`.

    Between rounds the text has `size` tokens, of which the target's cache holds all but the `last` (1,); `left` are
    still to be written.  Checked when it is made, works when it is iterated over.

    drafted: proposed by the drafter.  accepted: the first n of them, as the rule decides.  resampled: drawn from the
    residual distribution at the position of the first rejected one.  bonus: the target's token after a full acceptance,
    of a tree after a leaf.
    """

    def __init__(self, target, draft, ids, max_new_tokens, gamma=4, rule=None, sampling=None, draft_sampling=None,
                 eos_token_id=None, generator=None, trace=False, attention_mask=None):  # fmt: skip
        self.gamma, parts = arguments.a_gamma(gamma), arguments.a_trace(trace)
        self.rule, self.token_by_token = arguments.a_rule(rule, generator)
        self.sampling = arguments.a_sampling("sampling", sampling)
        self.draft_sampling = arguments.a_sampling("draft_sampling", draft_sampling, self.sampling)
        self.target, self.drafter = as_model(target), as_drafter(draft)
        self.ids, self.left, self.eos = arguments.a_text(self.target, ids, max_new_tokens, eos_token_id, attention_mask)
        self.size, self.last = self.ids.shape[1], self.ids[0, -1:]
        arguments.can_work(self.target, self.drafter, self.rule, self.size + self.left - 1)
        self.randomness, self.trace = as_randomness(generator, self.target.device), Tracer(parts, self.target)
        self.stop_reason, self.number = "length", 1  # of the round to come
        self.rounds = [] if callable(gamma) else None  # kept only for whoever wants them: traces are large

    def __iter__(self) -> Iterator[Round]:
        if self.left and self.number == 1:
            with torch.no_grad():
                self.start()
        while self.left:
            with torch.no_grad():  # not around the `yield`: the caller's code runs in between
                done = self.judge(self.score(self.draft()))
            yield done

    def start(self) -> None:
        """Both models read the prompt, once and all but its last token, which opens the first round."""
        start = self.drafter.start
        self.session = answers.a_session(start(self.ids[0], self.draft_sampling, self.randomness, self.target))
        if self.size > 1:
            self.target.feed(self.ids[0, :-1], 1)

    def draft(self) -> torch.Tensor:
        """1. Draft.  Returns what the target has to read: the text's last token and the k drafted ones, (k + 1,)."""
        return self.take(self.session.propose(self.ask()))  # a model's: `ModelSession`

    def ask(self) -> int:
        """A round begins.  How many tokens to draft at most: gamma, or less at the end of the budget."""
        answers.own_cache(self.target, self.size)
        self.trace.begin(self.session)
        self.wanted = self.gamma(self.rounds or [])
        self.asked = min(self.wanted, self.left - 1)  # the round adds one token itself
        return self.asked

    def take(self, draft: Draft) -> torch.Tensor:
        """What was drafted, as `draft` returns it."""
        draft = answers.a_draft(draft, self.asked, self.target)
        self.q, self.cut, self.parents = draft.q, self.asked < self.wanted or draft.cut, draft.parents
        self.given = to_device(draft.tokens, self.target.device, torch.int64)
        self.x = self.given.clamp(0, self.target.vocab - 1)  # a wrong one is reported without waiting for the device
        return torch.cat([self.last, self.x])

    def score(self, ids: torch.Tensor) -> torch.Tensor:
        """2. Score.  The target's logits (k + 1, vocab) for what `draft` returned."""
        if self.parents is None:
            return self.target.feed(ids)
        return self.target.feed(ids, parents=[self.size - 2, *(self.size + parent for parent in self.parents)])

    def judge(self, logits: torch.Tensor) -> Round:
        """Verify, roll back.  logits: those that `score` returned."""
        return self.settle(self.verify(logits).tolist())  # the host waits here and nowhere else, see `_packed`

    def verify(self, logits: torch.Tensor) -> torch.Tensor:
        """3. Verify: the first n drafted tokens are accepted, and one follows.  Returns what the host has to know."""
        # The target's distribution at each drafted position and one beyond, and the draft's beside it.
        logits = answers.some_logits(logits, len(self.x) + 1, self.target.vocab, "target")
        p = self.sampling.probabilities(logits)  # (k + 1, vocab)
        q = as_wide_as(p, self.q, self.x)  # (k, vocab)

        u = self.randomness.uniforms(len(self.x), self.size)
        n, distribution = self.rule(p, q, self.x, u, self.size, self.parents)  # of a tree: its path, as (k,) bool
        count = n if self.parents is None else n.sum()
        token = self.randomness.draw(distribution, self.size + count)  # (1,)
        self.verified = p, q, u, answers.a_token(token)
        return self._packed(n, token, p, q, distribution)

    def settle(self, seen: list[float]) -> Round:
        """4. Roll back: forget what was rejected.  seen: what `verify` returned, on the host."""
        (new, done), (p, q, u, token) = self._read(seen), self.verified  # the round's new tokens, as ints
        n = len(new) - 1
        if done.token is None:  # an accepted draft token ended the text: then that is the last one, not the target's
            last = n if done.path is None else done.path[n]
            token = self.x[last : last + 1]

        # Of what was read, `size + n` tokens stay; `token` follows them and is still to be read.
        with self.trace.around_rollback(done, p, q, u):
            if self.parents is None:
                self.target.rollback(self.size + n)
                self.session.accept(n, token.clone(), list(new))
            else:
                self.target.keep_rows(self.size, done.path[:n])
                self.session.accept(n, token.clone(), list(new), path=done.path[:n])

        self.last, self.size, self.left = token, self.size + n + 1, self.left - n - 1
        self.number += 1
        if new[-1] in self.eos:
            self.stop_reason, self.left = "eos", 0
        if self.rounds is not None:
            self.rounds.append(done)
        return done

    def _packed(self, n, token, p, q, distribution) -> torch.Tensor:
        """All that the host needs, in one tensor, so that one transfer brings it.  It waits there, and nowhere else
        (with any rule but "deepmind", a drafter that does not wait, and no trace)."""
        sums, chances = torch.stack([p.sum(), distribution.sum()]), q.gather(1, self.x.unsqueeze(1)).squeeze(1)
        n = n.view(-1) if isinstance(n, torch.Tensor) else torch.full((1,), n, device=p.device)
        tokens = torch.cat([token, self.given, n]).to(sums.dtype)  # in one type: `cat` would copy each by itself
        return torch.cat([tokens, sums, q.sum(1), chances])

    def _read(self, seen: list[float]) -> tuple[list[int], Round]:
        """The round's new tokens, and the round."""
        k, count = len(self.x), 1 if self.parents is None else len(self.x)  # a tree's path has a number a token
        whole = [int(x) if x % 1 == 0 else x for x in seen[: 1 + k + count]]  # whole ones are exact to 2**24
        (token, *drafted), (n, *_), path = whole[: k + 1], whole[k + 1 :], None
        if self.parents is not None:
            path = [i for i, on in enumerate(whole[k + 1 :]) if on]
            n = len(path)
        answers.a_verdict(n, token, drafted, seen[len(whole) :], self.target.vocab, self.number, self.size)
        accepted = drafted[:n] if path is None else [drafted[i] for i in path]
        kept = torch.tensor(drafted, dtype=torch.int64, device="cpu")
        tree = {"token_by_token": self.token_by_token and path is None, "parents": self.parents}
        stop = next((i for i, x in enumerate(accepted) if x in self.eos), None)
        if stop is not None:  # an accepted draft token ends the text: nothing follows it
            path = path and path[: stop + 1]
            return accepted[: stop + 1], Round(kept, stop + 1, None, None, cut=True, path=path, **tree)
        ended = n == k if path is None else (path[-1] if path else -1) not in self.parents  # at a leaf
        origin = "plain" if not drafted else "bonus" if ended else "resampled"
        return [*accepted, token], Round(kept, n, token, origin, self.cut, path=path, **tree)
