"""Train an embedded pair on a text file: tokenizer, target, then three drafts distilled from the target.

    python -m spec_lib.tiny.train stories.txt --out my_pair              # up to 100 minutes on two cores
    python -m spec_lib.tiny.train stories.txt --out my_pair --mode quick # five minutes and a short table: to try it
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
* **The target scores each lesson once.**  It costs more than all drafts together, so its laws are kept on the disk
  (about 4 GB in the full mode; delete `lessons` afterwards) and read as often as the drafts have time for.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections import Counter
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from ..pairs import load_gpt2

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
TOGETHER = ({"medium": 1.0}, {"large": 0.85, "small": 0.15})  # two processes, and each draft's share of its minutes
PLAIN = 0.5  # the share of the text that the target ends with
MODES = {"quick": (1.0, 1.2, 0.5, 1.3), "full": (22.0, 36.0, 8.0, 30.0)}  # minutes of each stage
STAGES = ("YOUNG", "TARGET", "LESSONS", "DRAFTS")


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

    def __init__(self, name: str, minutes: float, out: Path, state: dict, line: int = 0):
        self.name, self.seconds, self.file, self.state = name, minutes * 60, out / f"{name}.checkpoint", state
        self.line = line  # of the terminal, where several bars run side by side
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
            total=round(self.seconds),
            initial=round(self.used),
            unit="s",
            desc=self.name,
            position=self.line,
            mininterval=5,
            miniters=1,
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
def write_lessons(folder: Path, target: Path, ids: torch.Tensor, minutes: float, number: int, count: int) -> None:
    """Process `number` of `count`: files of rows of text, and the target's law behind each token of them.

    Half of the files hold text that the target wrote, at temperatures 1, 0.7 and near 0, behind 16 real tokens;
    the others real text, one in six as long as the context.  The laws stay on the disk (69 MB a file, 16 bit):
    scored once, each serves three drafts many times.
    """
    torch.set_num_threads(1)
    model = load_gpt2(target).eval()
    temperature = torch.tensor([1.0] * 36 + [0.7] * 16 + [0.01] * 12)[:, None]
    folder.mkdir(exist_ok=True)
    end, i = time.monotonic() + minutes * 60, number
    while time.monotonic() < end or i < 2 * count:  # of each kind at least one
        file, kind = folder / f"{i:04d}.pt", i // count % 12
        if not file.exists():
            torch.manual_seed(i)
            own, length = kind % 2 == 0, CONTEXT if kind in (1, 7) else WINDOW
            first = 0 if kind < 8 else int(torch.randint(CONTEXT - length + 1, (1,)))  # most are asked early on
            rows = 64 * WINDOW // length
            known = 16 if own else length
            starts = torch.randint(len(ids) - known, (rows,))
            text = torch.stack([ids[s : s + known] for s in starts])
            laws = torch.empty(rows, length, VOCAB, dtype=torch.float16)
            cached, fed, done = {}, text, 0
            while done < length:
                place = torch.arange(first + done, first + done + fed.shape[1])[None]
                result = model(input_ids=fed, position_ids=place, use_cache=own, **cached)
                laws[:, done : done + fed.shape[1]] = result.logits.softmax(-1)
                done += fed.shape[1]
                if own:
                    cached = {cache_name(): getattr(result, cache_name())}
                    fed = torch.multinomial((result.logits[:, -1] / temperature).softmax(-1), 1)
                    text = torch.cat([text, fed], 1)
            beside = file.with_suffix(".new")
            torch.save({"text": text[:, :length], "first": first, "laws": laws}, beside)
            os.replace(beside, file)
        i += count


def cache_name() -> str:
    """transformers 5.24 calls it `cache`, before that it was `past_key_values`."""
    import inspect

    return "cache" if "cache" in inspect.signature(GPT2LMHeadModel.forward).parameters else "past_key_values"


def train_drafts(names: dict[str, float], lessons: Path, minutes: float, out: Path, line: int) -> None:
    """One process: these drafts, one after the other, each with its share of the minutes."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "target")
    for name, share in names.items():
        store(train_draft(name, lessons, minutes * share, out, line), tokenizer, out / name)


def train_draft(name: str, lessons: Path, minutes: float, out: Path, line: int = 0) -> GPT2LMHeadModel:
    """Distil one draft from the target's laws, on one thread: matrices this small do not gain from a second."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chance = random.Random(name)
    files = [torch.load(file, mmap=True) for file in sorted(lessons.glob("*.pt"))]  # read where and when needed
    short, long = ([f for f in files if (f["text"].shape[1] == CONTEXT) == whole] for whole in (False, True))
    draft = new_model(name)
    muon, adam = optimizers(draft)
    stage = Stage(name, minutes, out, {"model": draft, "muon": muon, "adam": adam}, line)
    mean = None
    for share in stage:
        lesson = chance.choice(long if share > 0.5 and long and stage.steps % 4 == 0 else short)
        some = chance.sample(range(len(lesson["text"])), DRAFT_BATCH // lesson["text"].shape[1])
        text, p = lesson["text"][some], lesson["laws"][some].float()
        place = torch.arange(lesson["first"], lesson["first"] + text.shape[1])[None]
        logits = draft(input_ids=text, position_ids=place, use_cache=False).logits
        acceptance = torch.minimum(p, logits.softmax(-1)).sum(-1).mean()  # 1 - TV, in the form with two terms fewer
        variation = min(1.0, share / 0.3)
        loss = -4 * variation * acceptance
        if variation < 1:  # Kullback-Leibler, less the entropy of p, which the draft cannot change
            loss = loss - (1 - variation) * (p * logits.log_softmax(-1)).sum(-1).mean()
        loss.backward()
        step_all([muon, adam], share)
        mean = acceptance.item() if mean is None else 0.99 * mean + 0.01 * acceptance.item()
        stage.note = f"acceptance {mean:.3f}"
    return draft.eval()


def in_processes(work, arguments: list[tuple]) -> None:
    """work(*arguments) for each, side by side; Ctrl-C stops them all, each after its checkpoint."""
    processes = [get_context("spawn").Process(target=work, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("training stopped; the same command goes on from here")


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
    lessons = args.out / "lessons"
    in_processes(write_lessons, [(lessons, args.out / "target", plain, minutes[2], i, 2) for i in range(2)])
    in_processes(train_drafts, [(names, lessons, minutes[3], args.out, i) for i, names in enumerate(TOGETHER)])
    from .measure import measure

    table = measure(args.out, args.text, 16 if args.mode == "quick" else 200)
    (args.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
