"""Is the loop right on this device?  Random pairs whose output distribution is known, and the work of a round counted.

The weights and the random numbers are made on the CPU and are the same on every machine.
Derived in notebooks 06 (the work of a round) and 07 (the tests, and what each of them cannot see).
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean

import torch

from .. import hub
from ..cache import CachedModel
from ..decoding import autoregressive, speculative, speculative_rounds
from ..gpt2 import GPT2
from ..protocols import Model
from ..records import summarize
from ..sampling import Sampling

TEXTS, SIGNIFICANCE = 600, 1e-4  # of the test of the output distribution; the level is of all frequencies together
PROMPTS, NEW, TWINS = 4, 32, 40  # greedy texts and their length; texts that both rules write from the same numbers
GREEDY = Sampling(temperature=0)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is as it must be, and the sentence that says so."""

    good: bool
    text: str


def random_gpt2(shape, vocab: int, device, dtype=torch.float32, seed=0, positions=1024, spread=0.02):
    """A GPT-2 of shape (layers, width, heads) with random weights, made on the device, in eval mode."""
    from transformers import AutoModelForCausalLM, GPT2Config

    layers, width, heads = shape
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": vocab, "n_positions": positions}
    config = GPT2Config(**sizes, initializer_range=spread, bos_token_id=None, eos_token_id=None)
    device = torch.device(device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), device:
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=dtype).to(device).eval()


def tiny(vocab: int) -> list[torch.nn.Module]:
    """A target and a draft far apart, on the CPU: from there the same weights go to every device."""
    shapes = ((2, 16, 2), (1, 16, 2))
    return [random_gpt2(shape, vocab, "cpu", seed=4 + i, positions=64, spread=0.25) for i, shape in enumerate(shapes)]


def moved(models, device: torch.device, dtype=torch.float32) -> list[torch.nn.Module]:
    """Copies of the models on the device, in this dtype."""
    return [copy.deepcopy(model).to(device, dtype) for model in models]


# --- exact? ---------------------------------------------------------------------------------------------------------


def exactness(device: torch.device, progress: Callable[[str], object] = lambda text: None) -> Iterator[Finding]:
    """Each check as it is done: does the loop on this device write what the target alone would write?"""
    few, many = tiny(3), tiny(31)
    prompts = torch.randint(31, (PROMPTS, 5), generator=torch.Generator().manual_seed(1))
    checks: dict[str, Callable[[], tuple[bool, str]]] = {
        "the test pairs": lambda: _far_apart(few, many),
        "greedy, rule google": lambda: _greedy(*moved(many, device), prompts, "google"),
        "greedy, rule deepmind": lambda: _greedy(*moved(many, device), prompts, "deepmind"),
        "distribution, rule google": lambda: _distribution(few[0], *moved(few, device)),
        "distribution, rule deepmind": lambda: _same_texts(*moved(few, device)),
        "greedy, float16": lambda: _sixteen_bits(many, device, torch.float16, prompts),
        "greedy, bfloat16": lambda: _sixteen_bits(many, device, torch.bfloat16, prompts),
    }
    yield from findings(checks, progress)


def findings(checks: dict[str, Callable[[], tuple[bool, str]]], progress: Callable[[str], object]) -> Iterator[Finding]:
    """What each check gives, as it is done."""
    for name, check in checks.items():
        progress(name)
        try:
            good, text = check()
        except Exception as error:  # whatever a broken rule or device does is reported, and does not stop the check
            good, text = False, reason(error)
        yield Finding(good, f"{name}: {text}")


def reason(error: BaseException) -> str:
    """An error in half a sentence."""
    if hub.out_of_memory(error):
        return "it does not fit into the memory"
    text = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@torch.no_grad()
def _far_apart(*pairs) -> tuple[bool, str]:
    distances = []
    for pair in pairs:
        ids = torch.randint(pair[0].config.vocab_size, (20, 16), generator=torch.Generator().manual_seed(0))
        p, q = (model(ids).logits.double().softmax(-1) for model in pair)
        distances.append(float((p - q).abs().sum(-1).mean() / 2))
    # Nearer, and a wrong rule would hardly show; farther, and hardly anything would be accepted.
    return all(0.3 <= d <= 0.7 for d in distances), "target and draft apart by TV {:.2f} and {:.2f}".format(*distances)


def _greedy(target, draft, prompts: torch.Tensor, rule: str) -> tuple[bool, str]:
    parted = []
    for ids in prompts:
        plain = autoregressive(target, ids, NEW, sampling=GREEDY).tokens
        fast = speculative(target, draft, ids, NEW, rule=rule, sampling=GREEDY).tokens
        parted += [] if torch.equal(plain, fast) else [int((plain != fast).nonzero()[0])]
    found = f"{len(prompts)} texts of {NEW} tokens"
    if parted:
        return False, f"{len(parted)} of {found} differ from plain decoding, the first at token {min(parted) + 1}"
    return True, f"{found} equal plain decoding, token for token (float32)"


def _distribution(exact, target, draft, gamma: int = 2) -> tuple[bool, str]:
    """Texts of two rounds and more against the target's distribution over them, enumerated in float64 on the CPU."""
    vocab, new, ids = exact.config.vocab_size, 2 * gamma + 3, torch.tensor([[0, 1, 2]])
    everything = torch.cartesian_prod(*[torch.arange(vocab)] * new)  # (vocab^new, new)
    with torch.no_grad():
        read = torch.cat([ids.expand(len(everything), -1), everything[:, :-1]], 1)
        logs = copy.deepcopy(exact).double()(read).logits[:, ids.shape[1] - 1 :].log_softmax(-1)
    expected = _shares(everything, logs.gather(2, everything[..., None]).sum((1, 2)).exp(), vocab)
    texts = [speculative(target, draft, ids, new, gamma=gamma, generator=seed).tokens for seed in range(TEXTS)]
    rarest = rarity(_shares(torch.stack(texts), torch.ones(TEXTS, dtype=torch.float64), vocab), expected, TEXTS)
    limit = SIGNIFICANCE / len(expected)
    return rarest >= limit, (
        f"{TEXTS} texts of {new} tokens, {len(expected)} frequencies against the enumerated distribution: one as far "
        f"off as the worst of them comes by chance with probability {rarest:.1g}, significance level {limit:.1g} "
        f"(a right sampler fails in 1 of {1 / SIGNIFICANCE:,.0f} checks; a share near 1/2 that is off by "
        f"{3.2 / TEXTS**0.5:.2f} would be seen)"
    )


def _shares(texts: torch.Tensor, weights: torch.Tensor, vocab: int) -> torch.Tensor:
    """Weight of each word of 1 to 4 consecutive tokens, at each position of texts (n, length): (categories,)."""
    found = []
    for m in range(1, 5):
        for i in range(texts.shape[1] - m + 1):
            word = (texts[:, i : i + m] * vocab ** torch.arange(m)).sum(1)
            found.append(torch.zeros(vocab**m, dtype=weights.dtype).index_add(0, word, weights))
    return torch.cat(found)


def rarity(counts: torch.Tensor, expected: torch.Tensor, samples: int) -> float:
    """The smallest two-sided binomial probability of a count: no approximation.

    counts: of each category among the samples, (categories,).  expected: their probabilities, (categories,) float64.
    """
    k, n = torch.arange(samples + 1, dtype=expected.dtype), torch.tensor(float(samples), dtype=expected.dtype)
    choose = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
    mass = (choose + k * expected[:, None].log() + (n - k) * (-expected[:, None]).log1p()).exp()  # (categories, n + 1)
    low, high = mass.cumsum(1), mass.flip(1).cumsum(1).flip(1)  # of at most k, of at least k
    tails = torch.minimum(low, high).gather(1, counts.long()[:, None])
    return min(1.0, 2 * float(tails.min()))


def _same_texts(target, draft) -> tuple[bool, str]:
    def write(rule, seed):
        ids = torch.tensor([[0, 1, 2]])
        return speculative(target, draft, ids, 10, gamma=3, rule=rule, generator=seed).tokens

    differ = sum(not torch.equal(write("google", seed), write("deepmind", seed)) for seed in range(TWINS))
    return not differ, f"{TWINS - differ} of {TWINS} texts are rule google's own, from the same random numbers"


def _sixteen_bits(models, device, dtype, prompts: torch.Tensor) -> tuple[bool, str]:
    """No equality is claimed: a near-tie may fall either way.  But what is written must be a near-tie at the worst."""
    if dtype == torch.bfloat16 and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return True, "left out, this GPU only emulates it"
    try:
        target, draft = moved(models, device, dtype)
        fast = [speculative(target, draft, ids, NEW, sampling=GREEDY) for ids in prompts]
    except (RuntimeError, TypeError) as error:
        if "implement" in str(error) or "support" in str(error):
            return True, f"left out, not done by this device ({reason(error)})"
        raise
    plain = [autoregressive(target, ids, NEW, sampling=GREEDY).tokens for ids in prompts]
    with torch.no_grad():  # the same rounded weights, computed in float32
        logits = (
            copy.deepcopy(target).float()(torch.cat([text.ids for text in fast])).logits[:, prompts.shape[1] - 1 : -1]
        )
    written = torch.stack([text.tokens for text in fast]).to(logits.device)
    short = float((logits.amax(-1) - logits.gather(2, written[..., None])[..., 0]).max())
    tolerance = 8 * torch.finfo(dtype).eps * float(logits.abs().max())
    parted = sum(not torch.equal(text.tokens, other) for text, other in zip(fast, plain, strict=True))
    itself = [
        r for seed, ids in enumerate(prompts) for r in speculative(target, target, ids, 50, generator=seed).rounds
    ]
    s = summarize(itself)
    return short <= tolerance and s.rejected <= 0.05 * (s.accepted + s.rejected), (
        f"each token's logit within {short:.4f} of the largest in float32 (allowed {tolerance:.4f}); {parted} of "
        f"{len(fast)} texts differ from plain decoding; as its own draft, {s.rejected} of {s.accepted + s.rejected} "
        "tokens rejected (allowed 5 %)"
    )


# --- the work of a round --------------------------------------------------------------------------------------------


class Watched(CachedModel):
    """A model whose cache the caller keeps, so that `fed` can be read between two rounds."""

    def fresh(self) -> Watched:
        return self


class OwnWatched(GPT2):
    """The same of our own forward pass."""

    def fresh(self) -> OwnWatched:
        return self


@contextlib.contextmanager
def synchronisations(device: torch.device) -> Iterator[list]:
    """The times that the host waits for a CUDA device inside the block; none are seen on other devices."""
    found: list = []
    if device.type != "cuda":
        yield found
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True, action="always") as caught:
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
            # The mode announces itself with another warning, once, which must not be counted.
            found += [w for w in caught if "called a synchronizing" in str(w.message)]


def work(
    device: torch.device,
    rule: str,
    gamma: int = 4,
    watched: Callable[[torch.nn.Module], Model] = Watched,
    way: str = "",
) -> Finding:
    """Positions fed and synchronisations of each full round but the first, against what the algorithm needs.

    watched: makes the models, whose `fresh` must give themselves.  way: what that is called.
    """
    target, draft = (watched(model) for model in moved(tiny(31), device))
    for _ in speculative_rounds(target, draft, torch.arange(5), 50, gamma=gamma, rule=rule, generator=0):
        pass  # a text before: whatever is made at its first use (graphs, workspaces) is made now
    target.rollback(0), draft.rollback(0)
    rounds = speculative_rounds(target, draft, torch.arange(5), 50, gamma=gamma, rule=rule, generator=0)
    done, fed, needed, waits, extra = next(rounds), [], [], [], 0
    while True:
        before, full = (target.fed, draft.fed), done.origin == "bonus"
        with synchronisations(device) as waited:
            done = next(rounds, None)
        if done is None or done.cut:  # only the last rounds are cut: no full round follows
            break
        fed.append((target.fed - before[0], draft.fed - before[1]))
        needed.append((gamma + 1, gamma + full))  # of a draft accepted whole, the last token is still to be read
        waits, extra = [*waits, len(waited)], extra + full
    text = f"{way}rule {rule}: {sum(map(sum, fed))} positions fed in {len(fed)} rounds at gamma {gamma}, needed "
    text += f"{sum(map(sum, needed))} (2 gamma + 1 each, and {extra} more after full acceptances); synchronisations "
    if device.type != "cuda":
        return Finding(bool(fed) and fed == needed, text + "are counted on CUDA only")
    text += f"{mean(waits):.1f} a round, at most {max(waits)} (promised of google: 1)"
    return Finding(bool(fed) and fed == needed and (rule != "google" or max(waits) <= 1), text)
