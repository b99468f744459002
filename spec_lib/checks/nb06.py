"""The exercises of notebook 06: what to cut from two caches, a test of the draft's session, and how much is read."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..cache import TableModel
from ..drafting import ModelSession
from ..sampling import Sampling
from .engine import Case, Exercise


def _caches(drafted: list[int], n: int, token: int) -> tuple[list[int], list[int], list[int]]:
    """One round on lists: the text that it adds, and what target and draft model have read, right or wrong."""
    return [*drafted[:n], token], list(drafted), list(drafted[:-1])


def _still_text(read: list[int], text: list[int]) -> int:
    """How many tokens at the beginning of what was read are text."""
    kept = 0
    while kept < min(len(read), len(text)) and read[kept] == text[kept]:
        kept += 1
    return kept


def _trims(gamma: int, n: int) -> tuple[int, ...]:
    text, *caches = _caches(list(range(gamma)), n, -1)
    return tuple(len(read) - _still_text(read, text) for read in caches)


TRIMS = Exercise.against(
    _trims,
    cases={
        "gamma 4, 1 accepted": (4, 1),
        "gamma 4, none accepted": (4, 0),
        "gamma 4, 3 accepted": (4, 3),
        "gamma 4, all accepted": (4, 4),
        "gamma 1, none accepted": (1, 0),
        "gamma 1, all accepted": (1, 1),
        "gamma 8, 3 accepted": (8, 3),
    },
    mistakes={
        "the draft model's cache is cut as much as the target's, but it never held the last draft token": (
            lambda gamma, n: (gamma - n, gamma - n)
        ),
        "the draft model's cache is cut by a negative number after a full acceptance: there is nothing to cut": (
            lambda gamma, n: (gamma - n, gamma - 1 - n)
        ),
        "the two are swapped: the target is the first": lambda gamma, n: (max(gamma - 1 - n, 0), gamma - n),
        "one cut too many: neither model has read the token that the target added": (
            lambda gamma, n: (gamma + 1 - n, gamma - n)
        ),
        "this is how much stays, not how much is cut": lambda gamma, n: (n, min(n, gamma - 1)),
        "after a full acceptance -1 has become 1: the draft model's cache is one short, and nothing is cut from it": (
            lambda gamma, n: (gamma - n, abs(gamma - 1 - n))
        ),
        "one too few is cut from the draft model's cache: a rejected token stays in it": (
            lambda gamma, n: (gamma - n, max(gamma - 2 - n, 0))
        ),
        "two numbers are asked for: the cut of the target's cache and that of the draft model's": (
            lambda gamma, n: gamma - n
        ),
    },
)


def check_trims(function: Callable[[int, int], tuple[int, int]]) -> bool:
    """function(gamma, n) -> (tokens to cut from the target's cache, from the draft model's)."""
    return TRIMS.check(function)


class _Likeliest:
    """No randomness: the most likely token, so that a session can be copied and repeated."""

    def draw(self, p: torch.Tensor, position: int) -> torch.Tensor:
        return p.argmax().view(1)


class _OneShort(ModelSession):
    """The notebook's: after a full acceptance the last draft token is never read."""

    def unread(self):
        return self.text[-1:]

    def accept(self, n, token, tokens):
        self.model.rollback(self.model.length - max(len(self.drafted) - 1 - n, 0))
        self.text = torch.cat([self.text, self.drafted[:n], token])


class _ReadsAtOnce(ModelSession):
    """Right in another way: after a full acceptance the last draft token is read at once, not in the next round."""

    def accept(self, n, token, tokens):
        if n == len(self.drafted):
            self._feed(self.drafted[-1:])
        super().accept(n, token, tokens)


class _Counts(ModelSession):
    """Right in a third way: between rounds, it counts the tokens at the end of the text that it has not read."""

    waiting = 1

    def unread(self):
        return self.text[-self.waiting :]

    def accept(self, n, token, tokens):
        self.model.rollback(self.model.length - max(len(self.drafted) - 1 - n, 0))
        self.text = torch.cat([self.text, self.drafted[:n], token])
        self.waiting = 2 if n == len(self.drafted) else 1


def _strict(kind: type[ModelSession]) -> type[ModelSession]:
    """The same session, which looks at the `tokens` that the library's own session has no use for."""

    class Strict(kind):
        def accept(self, n, token, tokens):
            if torch.is_tensor(token):
                new = [*self.drafted[:n].tolist(), *token.flatten().tolist()]
                given = [int(x) for x in tokens] if isinstance(tokens, (list, tuple, torch.Tensor)) else tokens
                if given != new:
                    raise ValueError(f"accept({n}, ...) takes all {len(new)} new ids as `tokens`, {new}; got {given}")
            super().accept(n, token, tokens)

    return Strict


def _session(kind: type[ModelSession], *text: int) -> tuple[ModelSession]:
    table = torch.eye(8).roll(1, 1)  # 0, 1, 2, ...: each token is followed by the next
    return (_strict(kind)(TableModel(table), torch.tensor(text), Sampling(), _Likeliest(), 8),)


def _after(gamma: int, n: int, right: Callable[[ModelSession], bool]) -> Callable[[ModelSession], bool]:
    """A test of one round, of whose gamma draft tokens n are accepted."""

    def test(session: ModelSession) -> bool:
        drafted = session.propose(gamma).tokens
        session.accept(n, torch.tensor([0]), [*drafted[:n].tolist(), 0])
        return right(session)

    return test


def _nothing_lost(session: ModelSession) -> bool:
    return session.length + len(session.unread()) == len(session.text)


SMALLEST_TEST = Exercise(
    cases=(
        Case("the library's session, which must pass", _session(ModelSession, 0, 1, 2), True),
        Case("OneShort, which must fail", _session(_OneShort, 0, 1, 2), False),
        Case("a right session that reads its last draft token at once", _session(_ReadsAtOnce, 0, 1, 2), True),
        Case("a right session that counts what it has not read yet", _session(_Counts, 0, 1, 2), True),
        Case("OneShort on a longer text", _session(_OneShort, 3, 4, 5, 6, 7, 0), False),
    ),
    mistakes={
        "OneShort passes: accept the whole draft, and look at what the draft model has read, not at the text alone": (
            _after(3, 1, _nothing_lost)
        ),
        "a right session fails: after a whole accepted draft it may still have two tokens to read": (
            _after(1, 1, lambda s: len(s.unread()) == 1)
        ),
        "a session may also have read its last draft token at once: add what it has read to what it will read": (
            _after(1, 1, lambda s: len(s.unread()) == 2)
        ),
        "the round was not finished: `propose` only drafts, and `accept` ends the round": (
            lambda s: [s.propose(1), _nothing_lost(s)][1]
        ),
        "True and False are the wrong way round": _after(1, 1, lambda s: not _nothing_lost(s)),
        "every session fails: nobody has read the bonus token yet, it is in no cache": (
            _after(1, 1, lambda s: s.length == len(s.text))
        ),
        "the library's session fails: its cache may be one token short, as long as it will still read that token": (
            _after(1, 1, lambda s: s.length == len(s.text) - 1)
        ),
    },
)


def check_smallest_test(function: Callable[[ModelSession], bool]) -> bool:
    """function(session) -> whether a fresh session comes through one round as it must."""
    return SMALLEST_TEST.check(function)


def _fed(size: int, gamma: int, cached: bool, after_full: bool) -> tuple[int, int]:
    """One round, pass by pass."""
    text = list(range(size))
    read = {"target": size - 1, "draft": size - 1 - after_full}  # before the round
    fed = {"target": 0, "draft": 0}

    def a_pass(model: str) -> None:
        fed[model] += len(text) - (read[model] if cached else 0)
        read[model] = len(text)

    for i in range(gamma):
        a_pass("draft")
        text.append(size + i)
    a_pass("target")
    return fed["target"], fed["draft"]


FED_IN_ROUND = Exercise.against(
    _fed,
    cases={
        "text of 10, gamma 4, with caches": (10, 4, True, False),
        "text of 10, gamma 4, with caches, after a full acceptance": (10, 4, True, True),
        "text of 10, gamma 1, without caches": (10, 1, False, False),
        "text of 10, gamma 4, without caches": (10, 4, False, False),
        "text of 1000, gamma 4, without caches, after a full acceptance": (1000, 4, False, True),
    },
    mistakes={
        "the text's last token is missing from the target's pass: with the draft these are gamma + 1": (
            lambda s, g, cached, full: (g, g + full) if cached else (s + g - 1, _fed(s, g, cached, full)[1])
        ),
        "the last draft token is counted for the draft model: it is not read, as what follows it is not needed": (
            lambda s, g, cached, full: (g + 1, g + 1) if cached else (s + g, sum(s + i for i in range(g + 1)))
        ),
        "one token is forgotten after a full acceptance: the draft model then reads two in its first pass": (
            lambda s, g, cached, full: _fed(s, g, cached, False)
        ),
        "the extra token is the draft model's alone: the target is never one short": (
            lambda s, g, cached, full: (g + 1 + full, g + full) if cached else _fed(s, g, cached, full)
        ),
        "without a cache each draft pass reads a text that has grown by one": (
            lambda s, g, cached, full: _fed(s, g, cached, full) if cached else (s + g, s * g)
        ),
        "without a cache everything is read again, so no token is left over after a full acceptance": (
            lambda s, g, cached, full: (_fed(s, g, cached, full)[0], _fed(s, g, cached, False)[1] + full)
        ),
        "the two are swapped: the target is the first": lambda *a: _fed(*a)[::-1],
        "with and without caches are the wrong way round": lambda s, g, cached, full: _fed(s, g, not cached, full),
        "`cached` is not looked at: without a cache each pass reads the whole text": lambda s, g, cached, full: _fed(
            s, g, True, full
        ),
        "`cached` is not looked at: with a cache a pass reads only what its model has not read": (
            lambda s, g, cached, full: _fed(s, g, False, full)
        ),
        "the token left over from a full acceptance is the draft model's to read, not the target's": (
            lambda s, g, cached, full: (g + 1 + full, g) if cached else _fed(s, g, cached, full)
        ),
        "without a cache only the draft model's last pass is counted; it makes gamma passes": (
            lambda s, g, cached, full: _fed(s, g, cached, full) if cached else (s + g, s + g - 1)
        ),
        "without a cache the token that the target adds is counted, but it is drawn after the pass": (
            lambda s, g, cached, full: _fed(s, g, cached, full) if cached else (s + g + 1, _fed(s, g, cached, full)[1])
        ),
        "before the draft model's first pass nothing is drafted: without a cache it reads the text as it is": (
            lambda s, g, cached, full: _fed(s, g, cached, full) if cached else (s + g, _fed(s + 1, g, False, False)[1])
        ),
    },
)


def check_fed_in_round(function: Callable[[int, int, bool, bool], tuple[int, int]]) -> bool:
    """function(size, gamma, cached, after_full) -> positions that target and draft model read in one round."""
    return FED_IN_ROUND.check(function)
