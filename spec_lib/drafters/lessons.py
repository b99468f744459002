"""How a draft is trained on what the target itself writes.  Notebook 10.

Drafts continue the target's text, so the lessons are texts that the target wrote, with its hidden states; most losses
compare distributions, since acceptance at a position is 1 - TV(p, q).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tqdm import tqdm

from ..architectures import device_of, facts
from ..devices import to_device
from ..modes import evaluating
from ..numbers import as_int, at_least_one, described

BATCH = 64  # texts that are written at once


@dataclass
class Lessons:
    """Texts that the target wrote, and the states from which it wrote them.

    ids: (texts, length) int64.  hidden: (texts, length, width) float32, row t after ids[:, : t + 1], of the last layer
    after the last norm, or of layer `layer` as it leaves it.  final: as `hidden`, always of the last layer.
    """

    ids: torch.Tensor
    hidden: torch.Tensor
    final: torch.Tensor

    @classmethod
    def written(
        cls, target: torch.nn.Module, start: torch.Tensor, texts: int = 128, length: int = 256, seed: int = 0,
        layer: int | None = None, quiet: bool = False,
    ) -> Lessons:  # fmt: skip
        """Let a transformers model write `texts` texts of `length` tokens at temperature 1, 64 at a time.

        start: (1, m), the tokens with which each begins.  layer: whose states `hidden` holds, 1 for the first, None for
        the last.  A progress bar on stderr, unless quiet.  ValueError for what is no transformers model, and where a
        number is below 1, the length not above m, or more than the model has positions or layers.
        """
        texts, length = at_least_one("texts", texts), at_least_one("length", length)
        if not hasattr(getattr(target, "config", None), "get_text_config"):
            raise ValueError(f"lessons are written by a transformers model, got {described(target)}")
        config = target.config.get_text_config()
        if not isinstance(start, torch.Tensor) or start.ndim != 2 or len(start) != 1 or not 0 < start.shape[1] < length:
            got = tuple(start.shape) if isinstance(start, torch.Tensor) else described(start)
            raise ValueError(f"start must be a prompt (1, m) of fewer than {length} tokens, got {got}")
        if start.is_floating_point() or not 0 <= int(start.min()) <= int(start.max()) < config.vocab_size:
            raise ValueError(f"start must hold token ids from 0 to {config.vocab_size - 1}, got {described(start)}")
        if (most := getattr(config, "max_position_embeddings", length)) < length:
            raise ValueError(f"the target has {most} positions, too few for texts of {length} tokens")
        if layer is not None and at_least_one("layer", layer) >= config.num_hidden_layers:
            raise ValueError(
                f"layer must be below {config.num_hidden_layers}, the last (of which None stands), got {layer}"
            )
        start = start.to(device_of(target))
        g, written = _generator(seed, start.device), []
        with evaluating(target), tqdm(total=texts * (length - start.shape[1]), unit="token", disable=quiet) as bar:
            for done in range(0, texts, BATCH):
                first = start.expand(min(BATCH, texts - done), -1)
                written.append(_write(target, first, length, layer, g, bar))
        return cls(*(torch.cat(parts) for parts in zip(*written, strict=True)))

    def split(self, held: int) -> tuple[Lessons, Lessons]:
        """The lessons without the last `held` texts, and these.  ValueError unless both have texts."""
        if not 0 < at_least_one("held", held) < len(self.ids):
            raise ValueError(f"of {len(self.ids)} texts, {held} cannot be held out: at most {len(self.ids) - 1} can")
        parts = [(t[:-held], t[-held:]) for t in (self.ids, self.hidden, self.final)]
        return Lessons(*(a for a, _ in parts)), Lessons(*(b for _, b in parts))


def _generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    if (number := as_int(seed)) is None or not -(2**63) <= number < 2**64:
        raise ValueError(f"seed must be a whole number of 64 bits, got {described(seed)}")
    return torch.Generator(device).manual_seed(number)


def _positions(head, positions: int | None) -> int:
    """As many as there are heads, or 4, unless another number is given.  ValueError where some would have no head."""
    count = getattr(head, "count", None)
    found = (count or 4) if positions is None else at_least_one("positions", positions)
    if count is not None and found > count:
        raise ValueError(f"positions={found}, but these are heads for {count}: make Heads(target, count={found})")
    return found


def _refuse(head, lessons, positions: int) -> None:
    """ValueError where no head learns or is tried at so many positions of these lessons."""
    if not hasattr(head, "score") or isinstance(head, type):
        raise ValueError(f"head must be one of Heads, RecurrentHead and ExitHead, got {described(head)}")
    if not isinstance(lessons, Lessons):
        raise ValueError(f"lessons must be Lessons, as Lessons.written makes them, got {described(lessons)}")
    if (width := lessons.hidden.shape[-1]) != getattr(head, "width", width):
        raise ValueError(
            f"the head reads states of width {head.width}, and another target wrote these, of width {width}"
        )
    if (length := lessons.ids.shape[1]) < positions + 2:
        raise ValueError(f"{positions} positions need texts of {positions + 2} tokens, and these have {length}")


def _write(target, x: torch.Tensor, length: int, layer: int | None, g: torch.Generator, bar) -> list[torch.Tensor]:
    """A batch of texts that begin with x (texts, m), and their states: ids, hidden, final.

    The cache has its size from the start: one that grows is copied at every token, which takes most of the time.
    """
    from transformers import StaticCache

    cache = {facts(target).cache_argument: StaticCache(config=target.config, max_cache_len=length)}
    ids, hidden, final = [x], [], []
    for end in range(x.shape[1], length + 1):
        seen = x.new_ones(len(x), end)  # attention_mask: without it, a model with a padding token warns
        out = target(input_ids=x, attention_mask=seen, use_cache=True, output_hidden_states=True, **cache)
        final.append(out.hidden_states[-1].float())
        hidden.append(final[-1] if layer is None else out.hidden_states[layer].float())
        if end < length:
            x = torch.multinomial(out.logits[:, -1].float().softmax(-1), 1, generator=g)
            ids.append(x)
            bar.update(len(x))
    return [torch.cat(parts, 1) for parts in (ids, hidden, final)]


def _cross_entropy(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, done: float) -> torch.Tensor:
    return torch.nn.functional.nll_loss(q, x)


def _kl(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, done: float) -> torch.Tensor:
    return torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean")


def _tv(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, done: float) -> torch.Tensor:
    return 0.5 * (p.exp() - q.exp()).abs().sum(-1).mean()


# Each compares log-probabilities (n, vocab), the target's p and the draft's q; x (n,) is the token that was written,
# done the share of the training that is over.
LOSSES: dict[str, Callable] = {
    "cross-entropy": _cross_entropy,
    "KL": _kl,
    "TV": _tv,
    "KL, then TV": lambda p, q, x, done: (1 - done) * _kl(p, q, x, done) + done * _tv(p, q, x, done),
}


def train(
    head: torch.nn.Module, lessons: Lessons, steps: int = 500, positions: int | None = None,
    loss: str = "KL", seed: int = 0, rate: float = 1e-2, batch: int = 128, quiet: bool = False,
) -> torch.nn.Module:  # fmt: skip
    """Train a head on the target's lessons; returns it.

    head(h (n, width), tokens (n, positions)) gives logits (n, vocab) for each of so many positions; tokens are those
    that follow h in the text.  positions: None for as many as there are heads, or 4 where one head serves all.
    loss: one of LOSSES.  AdamW; the rate rises for 50 steps and falls to 0 along a cosine.  A progress bar on stderr,
    unless quiet.  ValueError for a loss that is not known, for numbers below 1, for more positions than there are
    heads, for texts that are too short or another target's, and for a head of which nothing is to be trained.
    """
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    steps, positions, batch = at_least_one("steps", steps), _positions(head, positions), at_least_one("batch", batch)
    _refuse(head, lessons, positions)
    g, (texts, length) = _generator(seed), lessons.ids.shape
    if not (weights := [w for w in head.parameters() if w.requires_grad]):
        raise ValueError("nothing of this head is to be trained: call head.requires_grad_() first")
    optimiser = torch.optim.AdamW(weights, rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda i: min((i + 1) / 50, 0.5 + 0.5 * math.cos(math.pi * i / steps))
    )
    there = lessons.ids.device
    along = torch.arange(positions, device=there)
    with (
        head.threads(),
        torch.inference_mode(False),
        torch.enable_grad(),
        tqdm(range(steps), unit="step", disable=quiet) as bar,
    ):
        for step in bar:
            draws = (torch.randint(n, (batch,), generator=g) for n in (texts, length - positions - 1))
            row, t = (to_device(x, there) for x in draws)  # an index on the host would wait for the device
            at = t[:, None] + head.ahead + along  # of the states whose distributions are to be guessed
            found = head(lessons.hidden[row, t], lessons.ids[row[:, None], t[:, None] + 1 + along])
            total = 0
            for j, logits in enumerate(found):
                with torch.no_grad():
                    p = head.score(lessons.final[row, at[:, j]]).log_softmax(-1)
                x = lessons.ids[row, at[:, j] + 1]
                total = total + LOSSES[loss](p, logits.log_softmax(-1), x, step / steps)
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            schedule.step()
            if not quiet and step % 20 == 0:  # a look at the loss waits for the device
                bar.set_postfix(loss=f"{float(total.detach()) / len(found):.3f}", refresh=False)
    return head


@torch.no_grad()
def overlaps(head: torch.nn.Module, lessons: Lessons, positions: int | None = None, every: int = 7) -> list[float]:
    """The mean of sum min(p, q) at each drafted position, on every so many positions of the lessons.

    positions: as for `train`.  ValueError for numbers below 1, for more positions than there are heads, and for texts
    that are too short or another target's.
    """
    positions, every = _positions(head, positions), at_least_one("every", every)
    _refuse(head, lessons, positions)
    there = lessons.ids.device
    t = torch.arange(0, lessons.ids.shape[1] - positions - 1, every, device=there)
    along = t[:, None] + torch.arange(positions, device=there)
    sums, count = torch.zeros(positions, device=there), 0
    for ids, hidden, final in zip(lessons.ids, lessons.hidden, lessons.final, strict=True):
        found = head(hidden[t], ids[along + 1])
        for j, logits in enumerate(found):
            p, q = head.score(final[along[:, j] + head.ahead]).softmax(-1), logits.softmax(-1)
            sums[j] += torch.minimum(p, q).sum()
        count += len(t)
    return (sums / count)[: len(found)].tolist()
