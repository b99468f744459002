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
* **The target scores each lesson once.**  It costs more than all drafts together, so its distributions are kept on
  the disk (about 4 GB in the full mode; delete `lessons` afterwards) and read as often as the drafts have time for.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from ..architectures import facts
from ..pairs import load_gpt2
from .measure import held_out_loss, measure
from .optimise import optimizers, step_all
from .shapes import CONTEXT, VOCAB, new_model
from .stories import Windows, in_a_row, plain_half, read_stories, split, to_ids, train_tokenizer

WINDOW = 256
BATCH = 4096  # tokens a step
DRAFT_BATCH = 1024  # distilling, each token teaches a whole distribution: more and smaller steps
TOGETHER = ({"medium": 1.0}, {"large": 0.85, "small": 0.15})  # two processes, and each draft's share of its minutes
MODES = {"quick": (1.0, 1.2, 0.5, 1.3), "full": (22.0, 36.0, 8.0, 30.0)}  # minutes of each stage
STAGES = ("YOUNG", "TARGET", "LESSONS", "DRAFTS")


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
    """Process `number` of `count`: files of rows of text, and the target's distribution after each token.

    Half of the files hold text that the target wrote, at temperatures 1, 0.7 and near 0, after 16 real tokens;
    the others real text, one in six as long as the context.  The distributions stay on the disk (69 MB a file, 16
    bit): scored once, each serves three drafts many times.
    """
    torch.set_num_threads(1)
    model = load_gpt2(target).eval()
    cache = facts(model).cache_argument
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
            distributions = torch.empty(rows, length, VOCAB, dtype=torch.float16)
            cached, fed, done = {}, text, 0
            while done < length:
                position = torch.arange(first + done, first + done + fed.shape[1])[None]
                result = model(input_ids=fed, position_ids=position, use_cache=own, **cached)
                distributions[:, done : done + fed.shape[1]] = result.logits.softmax(-1)
                done += fed.shape[1]
                if own:
                    cached = {cache: getattr(result, cache)}
                    fed = torch.multinomial((result.logits[:, -1] / temperature).softmax(-1), 1)
                    text = torch.cat([text, fed], 1)
            beside = file.with_suffix(".new")
            torch.save({"text": text[:, :length], "first": first, "distributions": distributions}, beside)
            os.replace(beside, file)
        i += count


def train_drafts(names: dict[str, float], lessons: Path, minutes: float, out: Path, line: int) -> None:
    """One process: these drafts, one after the other, each with its share of the minutes."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "target")
    for name, share in names.items():
        store(train_draft(name, lessons, minutes * share, out, line), tokenizer, out / name)


def train_draft(name: str, lessons: Path, minutes: float, out: Path, line: int = 0) -> GPT2LMHeadModel:
    """Distil one draft from the target's distributions, on one thread: matrices this small gain nothing from two."""
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
        text, p = lesson["text"][some], lesson["distributions"][some].float()
        position = torch.arange(lesson["first"], lesson["first"] + text.shape[1])[None]
        logits = draft(input_ids=text, position_ids=position, use_cache=False).logits
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
    table = measure(args.out, args.text, 16 if args.mode == "quick" else 200)
    (args.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
