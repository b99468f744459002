"""Forward passes of fixed shape for `GPT2`, which a CUDA graph can replay.  Derived in notebook 13.

A pass launches hundreds of kernels, and on a GPU the launching may take longer than what is launched.  A
CUDA graph is a recording of them that is launched as one.  It repeats the same operations on the same memory, so that
nothing in it may depend on the text's length: the tokens and their positions are read from tensors that stay where they
are, and attention is over a whole bucket of the cache, under a mask that hides what lies after each token.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable

import torch

from .sampling import Randomness, Sampling, draw

BUCKET = 256  # attention is over a multiple of so many positions, or over the whole context
LONGEST = 32  # tokens of a block of fixed shape; longer ones are mostly prompts, each of a length of its own
MOST = 128  # graphs that one cache keeps


def check(graphs: bool | str, device: torch.device) -> None:
    """Raise ValueError for what `GPT2(graphs=...)` does not know, and for CUDA graphs on another device."""
    if not isinstance(graphs, bool) and graphs != "eager":
        raise ValueError(f'graphs must be True, False or "eager" (fixed shapes without capture), got {graphs!r}')
    if graphs is True and device.type != "cuda":
        raise ValueError(f"CUDA graphs need a model on a CUDA device, and this one is on {device}: leave graphs out.")


class States:
    """The caches of all texts of one model, each with its graphs, which are tied to the cache's address.

    A text takes one when it is first read, and it comes back when the text's `GPT2` is gone: of texts that are written
    one after the other all use the same, of two at once each has its own.  Threads that capture at the same time, or
    texts on several streams, are not provided for.
    """

    def __init__(self, capture: bool):
        self.capture, self.free = capture, []

    def __reduce__(self) -> tuple:
        """Copies of the model share nothing with it: they begin without states."""
        return States, (self.capture,)

    def take(self, model) -> State:
        """A state for this `GPT2`.  Its cache becomes the model's own: what the model has read, and zeros beyond."""
        try:
            state = self.free.pop()
        except IndexError:
            state = None
        if state is None or state.weights != _addresses(model.model):  # moved or replaced: it would read the old ones
            state = State(model, self.capture)
        # Hidden positions get weight 0 in the attention, and 0 * NaN is NaN: what was never written must be finite,
        # and what another text left must be too, which may have ended in NaN logits.
        cache = state.body.cache.zero_()
        if model.length:  # it is a copy of another: see `GPT2.__getstate__`
            cache[:, :, :, : model.length] = model.cache[:, :, :, : model.length]
        model.cache = cache
        weakref.finalize(model, self.free.append, state).atexit = False
        return state


class State:
    """A cache of the whole context, and the passes of fixed shape over it, all on one stream.

    A text that gave NaN logits is over, also where it is rolled back to before them: until the cache is emptied, a
    later pass over the same bucket may give NaN too.
    """

    def __init__(self, model, capture: bool):
        self.weights, self.graphs = _addresses(model.model), {}
        self.body = copy.copy(model)  # its weights and layers; not the text's `GPT2` itself, which would then live on
        self.body.state = self.body.states = None
        self.sizes = [1, 2]  # of blocks, ascending; the first longer block, gamma + 1 tokens, adds its own
        self.capture, device = capture, model.device
        with torch.inference_mode(False):  # else they could not be written to outside inference mode
            layers, two, heads, _, size = model.cache.shape
            self.body.cache = model.embedding.new_zeros(layers, two, heads, model.max_length, size)
            self.room = self.body.cache[:, :, None].unbind()
            self.steps = torch.arange(model.max_length, device=device)
            self.ids = torch.zeros(LONGEST, dtype=torch.int64, device=device)
            self.start, self.last = torch.zeros(2, 1, dtype=torch.int64, device=device).unbind()  # positions
            self.uniforms = torch.zeros(LONGEST, device=device)
        if capture:
            self.stream, self.memory = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def feed(self, ids: torch.Tensor, start: int, keep: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Read ids (n,), n at most LONGEST, at the positions from `start` on: logits (n, vocab) and hidden states (n,
        width), or the last `keep` rows of them."""
        n = len(ids)
        if n > self.sizes[-1]:
            self.sizes.append(n)
        size, bucket = next(s for s in self.sizes if s >= n), self._bucket(start + n)
        self._put(ids, start, size)
        rows = slice(0 if keep is None else max(0, n - keep), n)
        logits, hidden = self._run((size, bucket), lambda: self._block(size, bucket))
        return logits[rows].clone(), hidden[rows]  # states are read before the next pass, or not at all

    def draft(
        self, ids: torch.Tensor, start: int, k: int, sampling: Sampling, randomness: Randomness
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read ids (1 or 2,) at the positions from `start` on, draw a token, read it, and so on: tokens (k,) int64,
        of which the last is not read, and q (k, vocab) from which they were drawn.  k: at most LONGEST."""
        m = len(ids)
        drawn = [randomness.uniforms(1, start + m + i) for i in range(k)]  # one by one, as the loop does
        torch.cat(drawn, out=self.uniforms[:k])
        self._put(ids, start, m)
        bucket = self._bucket(start + m + k - 1)
        tokens, q = self._run((m, k, sampling, bucket), lambda: self._drafted(m, k, sampling, bucket))
        return tokens.clone(), q.clone()

    def _bucket(self, end: int) -> int:
        return min(len(self.steps), -(-end // BUCKET) * BUCKET)

    def _put(self, ids: torch.Tensor, start: int, size: int) -> None:
        """Write the inputs where the graphs read them.  The host does not wait: `fill_` sends its number along."""
        n = len(ids)
        self.ids[:n].copy_(ids)
        if n < size:
            self.ids[n:size].copy_(ids[-1:].expand(size - n))
        self.start.fill_(start)
        self.last.fill_(start + n - 1)

    # --- what is recorded: every operation's shape follows from the key alone -----------------------------------------

    def _block(self, size: int, bucket: int) -> tuple[torch.Tensor, torch.Tensor]:
        # A block that is shorter than `size` is padded with its last token, at that token's own position: these rows
        # compute what the last one does and write it where it writes it, so that padding leaves no trace but rounding.
        at = torch.minimum(self.start + self.steps[:size], self.last)
        return self._score(self.ids[:size], at, bucket, size), self.body.hidden

    def _drafted(self, m: int, k: int, sampling: Sampling, bucket: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, at, tokens, q = self.ids[:m], self.start + self.steps[:m], [], []
        for i in range(k):
            q.append(sampling.probabilities(self._score(ids, at, bucket, 1)[-1]))
            tokens.append(draw(q[-1], self.uniforms[i]))
            ids, at = tokens[-1], at[-1:] + 1
        return torch.cat(tokens), torch.stack(q)

    def _score(self, ids: torch.Tensor, at: torch.Tensor, bucket: int, rows: int) -> torch.Tensor:
        """Read ids (n,) at the positions `at` (n,): logits of the last rows, (rows, vocab)."""
        body = self.body
        mask = body.embedding.new_zeros(len(ids), bucket)
        mask.masked_fill_(self.steps[:bucket] > at[:, None], -torch.inf)
        x, seen = body.embedding.index_select(0, ids), body.cache[:, :, None, :, :bucket]
        x = x + body.positions.index_select(0, at)
        x = body.through(x, self.room, lambda room, new: room.index_copy_(3, at, new), seen, mask)
        return body.score(x[-rows:])

    # --- running and recording ----------------------------------------------------------------------------------------

    def _run(self, key: tuple, work: Callable):
        """What `work` returns: on the spot, or from its graph, whose next replay overwrites it."""
        with torch.inference_mode(False), torch.no_grad(), self.body.threads():
            if not self.capture:
                return work()
            if key not in self.graphs:
                if len(self.graphs) >= MOST:
                    del self.graphs[next(iter(self.graphs))]  # the oldest
                self.graphs[key] = self._captured(work)
            graph, out = self.graphs[key]
            graph.replay()
            return out

    def _captured(self, work: Callable) -> tuple:
        """A graph of `work` and the tensors that a replay fills.

        All graphs of a state share memory: each may use again what lies between the inputs and outputs of another,
        since one replay ends before the next begins, on the same stream, and outputs are copied out in between.
        """
        with torch.cuda.device(self.body.device):
            here = torch.cuda.current_stream()
            self.stream.wait_stream(here)
            with torch.cuda.stream(self.stream):
                work()  # warms up the libraries; it writes to the cache what the replay will write again
            here.wait_stream(self.stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.memory, stream=self.stream, capture_error_mode="thread_local"):
                out = work()  # recorded, not run
        return graph, out


def _addresses(network: torch.nn.Module) -> list[int]:
    return [weight.data_ptr() for weight in network.parameters()]
