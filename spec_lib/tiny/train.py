"""Train an embedded pair on a text file: tokenizer, target, then three drafts distilled from the target.

    python -m spec_lib.tiny.train stories.txt --out my_pair              # up to 100 minutes on two cores
    python -m spec_lib.tiny.train stories.txt --out my_pair --mode quick # five minutes: to try the script
    python -m spec_lib.tiny.measure stories.txt --pair my_pair           # print the model card's table again

Stop it whenever you like (Ctrl-C): the same command goes on where it was.  Load the result with
`spec_lib.load_pair("my_pair/target", "my_pair/medium")`.

What is unusual here, and why:

* **Time is the budget.**  The schedule is a function of the share of the minutes already used, so that "100
  minutes" holds on any machine.  A faster one sees more text.
* **Muon for the matrices** (Jordan et al. 2024): each update is orthogonalised, which at this size needs about
  a third fewer tokens than AdamW for the same loss.  `torch.optim.Muon` iterates in bfloat16, which takes nine
  seconds a step on a CPU without bfloat16 units; here the iteration runs in float32, all layers of one shape at
  once, in a tenth of a second.
* **Short windows at random positions.**  Windows of 256 tokens are placed anywhere in the context of 1,024, so
  that every position embedding is trained at a quarter of the attention's cost; windows of 1,024 come later.
* **First everything, then the plain half, with more layers.**  A model this small cannot write like Wilde; it can
  learn to tell a plain tale.  So it reads all stories with few layers, which is quick; then layers are added that
  at first change nothing, and it reads on in the half of the text that is the easiest to predict.
* **Drafts learn what they will be asked.**  Acceptance at a position is 1 - TV(p, q), on text that the *target*
  writes.  So the target first writes some, and the loss moves from Kullback-Leibler (good gradients early) to
  the total variation distance itself.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT = 1024
VOCAB = 2048
WINDOW = 256
BATCH = 4096  # tokens a step
DRAFT_BATCH = 1024  # distilling, each token teaches a whole law: more and smaller steps
END = "<|endoftext|>"
SHAPES = {  # layers, width, heads
    "young": (12, 144, 3),  # the target in its first stage
    "target": (18, 144, 3),
    "small": (1, 32, 1),
    "medium": (1, 160, 5),
    "large": (2, 192, 6),
}
DRAFTS = ("small", "medium", "large")
PLAIN = 0.5  # the share of the text that the target ends with
MODES = {"quick": (1.0, 1.5, 0.5, 1.5), "full": (26.0, 40.0, 5.0, 25.0)}  # minutes of each stage
STAGES = ("YOUNG", "TARGET", "WRITING", "DRAFTS")


# --- text -------------------------------------------------------------------------------------------------------


def read_stories(path: Path) -> list[str]:
    """The file's stories: parted by three newlines, or else pieces of about 8,000 characters."""
    text = path.read_text(encoding="utf-8")
    stories = [s.strip("\n") for s in text.split("\n\n\n") if s.strip()]
    if len(stories) < 20:
        stories, piece = [], ""
        for paragraph in text.split("\n\n"):
            piece += ("\n\n" if piece else "") + paragraph.strip("\n")
            if len(piece) > 8000:
                stories.append(piece)
                piece = ""
        stories += [piece] if piece.strip() else []
    if len(stories) < 20:
        raise SystemExit(f"{path} holds {len(text):,} characters; training needs at least 160,000 (twenty stories).")
    return stories


def split(stories: list[str]) -> tuple[list[str], list[str]]:
    """(training stories, held-out stories): every twentieth story is held out."""
    return [s for i, s in enumerate(stories) if i % 20 != 10], [s for i, s in enumerate(stories) if i % 20 == 10]


def train_tokenizer(stories: list[str], folder: Path):
    """A byte-level BPE like GPT-2's, of `VOCAB` tokens; id 0 ends a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    file = folder / "tokenizer.json"
    if not file.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        trainer = trainers.BpeTrainer(
            vocab_size=VOCAB,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(stories, trainer)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(file))
    return PreTrainedTokenizerFast(tokenizer_file=str(file), bos_token=END, eos_token=END, model_max_length=CONTEXT)


def to_ids(stories: list[str], tokenizer) -> list[list[int]]:
    """Each story behind an end-of-text token."""
    return [
        [tokenizer.eos_token_id, *row]
        for row in tokenizer(stories, add_special_tokens=False, verbose=False)["input_ids"]
    ]


def in_a_row(stories: list[list[int]]) -> torch.Tensor:
    """(tokens,) int64"""
    return torch.tensor([i for ids in stories for i in ids])


def plain_half(stories: list[str], held: list[str], tokenizer) -> tuple[list[list[int]], list[list[int]]]:
    """The plainest stories that make up `PLAIN` of the text, and the held-out stories that are as plain, as ids."""
    ids, held_ids = to_ids(stories, tokenizer), to_ids(held, tokenizer)
    scores = plainest(ids, [len(s) for s in stories], ids)
    left, limit = PLAIN * sum(map(len, ids)), 0.0
    for score, row in sorted(zip(scores, ids, strict=True)):
        limit, left = score, left - len(row)
        if left <= 0:
            break
    held_scores = plainest(held_ids, [len(s) for s in held], ids)
    chosen = [row for score, row in zip(scores, ids, strict=True) if score <= limit]
    held_chosen = [row for score, row in zip(held_scores, held_ids, strict=True) if score <= limit]
    return chosen, held_chosen or held_ids


def plainest(stories: list[list[int]], characters: list[int], counted: list[list[int]]) -> list[float]:
    """How hard each story (as ids) is to foresee from the token before: nats a character, under counts of `counted`.

    A story is left out of its own counts, or the shortest ones would look the plainest.
    """
    single = Counter(i for ids in counted for i in ids)
    double = Counter(pair for ids in counted for pair in pairwise(ids))
    known, total, found = {id(ids) for ids in counted}, single.total(), []
    for ids, length in zip(stories, characters, strict=True):
        own = Counter(pairwise(ids)) if id(ids) in known else Counter()
        nats = 0.0
        for (a, b), times in Counter(pairwise(ids)).items():
            follows = max(double[a, b] - own[a, b], 0) / max(single[a], 1)
            nats -= times * math.log(0.7 * follows + 0.3 * (single[b] + 1) / (total + VOCAB))
        found.append(nats / length)
    return found


class Windows:
    """Windows of the text in random order, a new cut in every pass over it."""

    def __init__(self, ids: torch.Tensor, seed: int):
        self.ids, self.random, self.starts, self.length = ids, random.Random(seed), [], 0

    def take(self, rows: int, length: int) -> torch.Tensor:  # (rows, length + 1)
        if length != self.length or len(self.starts) < rows:
            first = self.random.randrange(length)
            self.starts = list(range(first, len(self.ids) - length - 1, length))
            self.random.shuffle(self.starts)
            self.length = length
            if len(self.starts) < rows:  # a text shorter than one batch
                self.starts = [self.random.randrange(len(self.ids) - length - 1) for _ in range(rows)]
        return torch.stack([self.ids[s : s + length + 1] for s in (self.starts.pop() for _ in range(rows))])


# --- models and optimizers --------------------------------------------------------------------------------------


def new_model(name: str) -> GPT2LMHeadModel:
    layers, width, heads = SHAPES[name]
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=CONTEXT,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own curve, computed in one operation
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def orthogonalise(g: torch.Tensor) -> torch.Tensor:
    """The nearest (semi-)orthogonal matrix to each of a stack (n, rows, columns), by five quintic steps."""
    flip = g.shape[-2] > g.shape[-1]
    x = g.mT if flip else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if flip else x


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; float32, one batched iteration for all matrices of a shape."""

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes: dict[tuple, list] = {}
            for p in group["params"]:
                shapes.setdefault(tuple(p.shape), []).append(p)
            for shape, ps in shapes.items():
                updates = []
                for p in ps:
                    m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    m.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(m, group["momentum"]))
                scale = max(1.0, max(shape) / min(shape)) ** 0.5
                for p, u in zip(ps, orthogonalise(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"] * scale)


def optimizers(model: torch.nn.Module, scale: float = 1.0) -> list[torch.optim.Optimizer]:
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and ".h." in n]
    other = [p for n, p in model.named_parameters() if not (p.ndim == 2 and ".h." in n)]
    found = [
        Muon(hidden, lr=0.02 * scale, weight_decay=0.05),
        torch.optim.AdamW(other, lr=4e-3 * scale, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return found


def step_all(opts: list[torch.optim.Optimizer], share: float) -> None:
    """One step at the learning rate of this share of the time: up at once, soon straight down to zero."""
    factor = min(1.0, share / 0.01, (1.0 - share) / 0.85)
    for optimizer in opts:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * max(factor, 1e-3)
        optimizer.step()
        optimizer.zero_grad()


# --- the stages -------------------------------------------------------------------------------------------------


class Stage:
    """A stretch of `minutes` of work that can be stopped and resumed: `for share in stage: ...`."""

    def __init__(self, name: str, minutes: float, out: Path, state: dict):
        self.name, self.seconds, self.file, self.state = name, minutes * 60, out / f"{name}.checkpoint", state
        self.note, self.used, self.steps = "", 0.0, 0
        if self.file.exists():
            saved = torch.load(self.file, weights_only=False)
            self.used, self.steps = saved.pop("used"), saved.pop("steps")
            for key, thing in state.items():
                if hasattr(thing, "load_state_dict"):
                    thing.load_state_dict(saved[key])
                else:
                    thing.__dict__.update(saved[key])
            print(f"{name}: going on after {self.used / 60:.1f} minutes, {self.steps} steps", flush=True)

    def save(self) -> None:
        saved = {k: t.state_dict() if hasattr(t, "state_dict") else t.__dict__ for k, t in self.state.items()}
        beside = self.file.with_suffix(".new")
        torch.save({**saved, "used": self.used, "steps": self.steps}, beside)
        os.replace(beside, self.file)  # never half a file, wherever it is stopped

    def __iter__(self):
        last = saved = time.monotonic()
        with tqdm(
            total=round(self.seconds), initial=round(self.used), unit="s", desc=self.name, mininterval=5, miniters=1
        ) as bar:
            try:
                while self.used < self.seconds:
                    yield self.used / self.seconds
                    now = time.monotonic()
                    self.used, last, self.steps = self.used + now - last, now, self.steps + 1
                    bar.set_postfix_str(f"step {self.steps} {self.note}", refresh=False)
                    bar.update(min(round(self.used), bar.total) - bar.n)
                    if now - saved > 120:
                        self.save()
                        saved = now
            finally:
                self.save()


def grow(small: GPT2LMHeadModel, name: str) -> GPT2LMHeadModel:
    """A deeper model that computes the same: an added layer copies its neighbour but adds nothing, at first."""
    model = new_model(name)
    old, new = small.transformer, model.transformer
    new.wte.load_state_dict(old.wte.state_dict())
    new.wpe.load_state_dict(old.wpe.state_dict())
    new.ln_f.load_state_dict(old.ln_f.state_dict())
    for i, layer in enumerate(new.h):
        source, last = (j * len(old.h) // len(new.h) for j in (i, i - 1))
        layer.load_state_dict(old.h[source].state_dict())
        if i and source == last:
            for projection in (layer.attn.c_proj, layer.mlp.c_proj):
                torch.nn.init.zeros_(projection.weight)
                torch.nn.init.zeros_(projection.bias)
    return model


def train_target(
    name: str, model: GPT2LMHeadModel, ids: torch.Tensor, held: torch.Tensor, minutes: float, out: Path
) -> GPT2LMHeadModel:
    muon, adam = optimizers(model)
    windows, long_windows = Windows(ids, seed=1), Windows(ids, seed=4)
    state = {"model": model, "muon": muon, "adam": adam, "windows": windows, "long_windows": long_windows}
    stage = Stage(name, minutes, out, state)
    mean, seen = None, time.monotonic()
    for share in stage:
        long = share > 0.6 or stage.steps % 4 == 0
        length = CONTEXT if long else WINDOW
        batch = (long_windows if long else windows).take(BATCH // length, length)
        first = random.randrange(CONTEXT - length + 1)
        logits = model(
            input_ids=batch[:, :-1], position_ids=torch.arange(first, first + length)[None], use_cache=False
        ).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step_all([muon, adam], share)
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        stage.note = f"loss {mean:.3f}"
        if time.monotonic() - seen > 300:
            seen = time.monotonic()
            tqdm.write(f"{stage.used / 60:.1f} min, step {stage.steps}: held-out {held_out_loss(model, held, 20):.3f}")
    return model.eval()


@torch.no_grad()
def write_text(model: GPT2LMHeadModel, ids: torch.Tensor, minutes: float, out: Path) -> torch.Tensor:
    """The target's own text, (rows, WINDOW + 1): at temperatures 1, 0.7 and near 0, behind 16 real tokens each."""
    file, rows = out / "written.pt", []
    if file.exists():
        return torch.load(file)
    temperature = torch.tensor([1.0] * 36 + [0.7] * 16 + [0.01] * 12)[:, None]
    end = time.monotonic() + minutes * 60
    with tqdm(desc="writing", unit=" rows", mininterval=5) as bar:
        while time.monotonic() < end or not rows:
            starts = torch.randint(0, len(ids) - 17, (64,))
            row = torch.stack([ids[s : s + 16] for s in starts])
            cache, fed = None, row
            while row.shape[1] < WINDOW + 1:
                kept = {} if cache is None else {cache_name(): cache}
                result = model(input_ids=fed, use_cache=True, **kept)
                cache = getattr(result, cache_name())
                fed = torch.multinomial((result.logits[:, -1] / temperature).softmax(-1), 1)
                row = torch.cat([row, fed], 1)
            rows.append(row)
            bar.update(64)
    torch.save(torch.cat(rows), file)
    return torch.cat(rows)


def cache_name() -> str:
    """transformers 5.24 calls it `cache`, before that it was `past_key_values`."""
    import inspect

    return "cache" if "cache" in inspect.signature(GPT2LMHeadModel.forward).parameters else "past_key_values"


def train_drafts(target, ids: torch.Tensor, written: torch.Tensor, minutes: float, out: Path) -> dict:
    """Distil all drafts at once, so that the target scores each batch once for the three."""
    drafts = {name: new_model(name) for name in DRAFTS}
    opts = {name: optimizers(drafts[name]) for name in DRAFTS}
    windows, long_windows = Windows(ids, seed=2), Windows(ids, seed=3)
    state = {"windows": windows, "long_windows": long_windows, **drafts}
    state |= {f"{n}-{i}": o for n in DRAFTS for i, o in enumerate(opts[n])}
    stage = Stage("drafts", minutes, out, state)
    mean: dict[str, float] = {}
    for share in stage:
        if share > 0.6 and stage.steps % 3 == 0:  # the whole context, so that guesses hold far into a text
            batch, first = long_windows.take(DRAFT_BATCH // CONTEXT, CONTEXT)[:, :-1], 0
        else:
            rows = DRAFT_BATCH // WINDOW
            own = written[torch.randint(0, len(written), (rows * 5 // 8,)), :-1]
            batch = torch.cat([windows.take(rows - len(own), WINDOW)[:, :-1], own])
            first = random.choice((0, 0, random.randrange(CONTEXT - WINDOW + 1)))  # most are asked early on
        position = torch.arange(first, first + batch.shape[1])[None]
        with torch.no_grad():
            log_p = target(input_ids=batch, position_ids=position, use_cache=False).logits.log_softmax(-1)
            p = log_p.exp()
        variation = min(1.0, share / 0.4)
        for name, draft in drafts.items():
            log_q = draft(input_ids=batch, position_ids=position, use_cache=False).logits.log_softmax(-1)
            distance = (p - log_q.exp()).abs().sum(-1).mean() / 2  # 1 - acceptance
            loss = 4 * variation * distance
            if variation < 1:
                loss = loss + (1 - variation) * (p * (log_p - log_q)).sum(-1).mean()
            loss.backward()
            step_all(opts[name], share)
            mean[name] = distance.item() if name not in mean else 0.99 * mean[name] + 0.01 * distance.item()
        stage.note = " ".join(f"{n} {1 - v:.3f}" for n, v in mean.items())
    return {name: draft.eval() for name, draft in drafts.items()}


@torch.no_grad()
def held_out_loss(model, held: torch.Tensor, most: int = 200) -> float:
    """Nats a token, over windows of the whole context."""
    losses = []
    for start in range(0, min(len(held) - CONTEXT - 1, most * CONTEXT), CONTEXT):
        row = held[start : start + CONTEXT + 1]
        losses.append(F.cross_entropy(model(input_ids=row[None, :-1], use_cache=False).logits[0], row[1:]))
    return torch.stack(losses).mean().item()


def store(model, tokenizer, folder: Path) -> None:
    """A folder for `from_pretrained`: configuration, tokenizer, weights in 16 bit (without the tied head)."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {k: v.to(torch.float16).contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m spec_lib.tiny.train", description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path, help="a UTF-8 text file; stories parted by three newlines")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pair and its checkpoints")
    parser.add_argument("--mode", choices=MODES, default="full")
    parser.add_argument("--minutes", type=float, nargs=len(STAGES), metavar=STAGES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    if not args.text.is_file():
        parser.error(f"there is no file {args.text}")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    random.seed(0)
    minutes = args.minutes or MODES[args.mode]
    stories, held_stories = split(read_stories(args.text))
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(stories, args.out)
    ids, held = in_a_row(to_ids(stories, tokenizer)), in_a_row(to_ids(held_stories, tokenizer))
    plain, held_plain = (in_a_row(rows) for rows in plain_half(stories, held_stories, tokenizer))
    print(f"{len(stories)} stories, {len(ids):,} tokens, {len(plain):,} in the plain half", flush=True)
    print(f"{len(held_stories)} held out, {len(held):,} tokens, {len(held_plain):,} as plain", flush=True)
    young = train_target("young", new_model("young"), ids, held, minutes[0], args.out)
    target = train_target("target", grow(young, "target"), plain, held_plain, minutes[1], args.out)
    store(target, tokenizer, args.out / "target")
    print(f"target: held-out loss {held_out_loss(target, held_plain):.3f} nats a token", flush=True)
    written = write_text(target, plain, minutes[2], args.out)
    drafts = train_drafts(target, plain, written, minutes[3], args.out)
    for name, draft in drafts.items():
        store(draft, tokenizer, args.out / name)
    from .measure import measure

    table = measure(args.out, args.text, 40 if args.mode == "quick" else 200)
    (args.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
