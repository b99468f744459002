"""Plant one fault at a time in the source, run the tests, and print which check caught it.

    python -m tests.plant_faults            # all of them; an hour or more
    python -m tests.plant_faults bonus eos  # those whose name holds one of these words

Each fault is a small change of one file in a copy of the project: the wrong samplers that stand in public code, the
off-by-ones of caches, budgets, end-of-text and statistics, and settings dropped on their way.  The run ends with
exit code 1 if one of them is caught by nothing.  `test_mutants.py` plants wrong samplers too, from within Python and
in seconds; this run changes the text itself, so that nothing can be planted past the tests.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# In this order, the quick ones first; a run stops at the first failure.
TESTS = (
    "test_exact_rule",
    "test_sampling",
    "test_cache",
    "test_trace",
    "test_decoding",
    "test_performance_guards",
    "test_derived",
    "test_exact_loop",
    "test_odd_uses",
    "test_properties",
    "test_pairs",
)


@dataclass(frozen=True)
class Fault:
    """`old`, which stands once in spec_lib/`file`.py, becomes `new`."""

    name: str
    file: str
    old: str
    new: str


TOKEN = "token = self.source.draw(law, size + n)  # (1,)"
V, S, C, D, G = "verification", "sampling", "cache", "decoding", "drafting"
FAULTS = (
    # --- the rule
    Fault(
        "after a rejection draw from p, not from the residual (google)",
        V,
        "torch.where(n < k, residual(p_n, q_n), p_n)",
        "p_n",
    ),
    Fault(
        "after a rejection draw from p, not from the residual (deepmind)",
        V,
        "return t, residual(p[t], q[t])",
        "return t, p[t]",
    ),
    Fault("residual of the absolute difference", V, "(p - q).clamp(min=0)", "(p - q).abs()"),
    Fault(
        "residual of the softened difference",
        V,
        "rest = (p - q).clamp(min=0)",
        "rest = (p - q).clamp(min=0).softmax(-1)",
    ),
    Fault("residual turned round", V, "rest = (p - q).clamp(min=0)", "rest = (q - p).clamp(min=0)"),
    Fault(
        "residual not divided by its sum",
        V,
        "torch.where(total > 0, rest / total, p)",
        "torch.where(total > 0, rest, p)",
    ),
    Fault("residual without the way out at p = q", V, "torch.where(total > 0, rest / total, p)", "rest / total"),
    Fault(
        "ratio turned round (google)", V, "p[:k].gather(1, x) / q.gather(1, x)", "q.gather(1, x) / p[:k].gather(1, x)"
    ),
    Fault(
        "ratio turned round (deepmind)",
        V,
        "torch.clamp(p[t, x] / q[t, x], max=1)",
        "torch.clamp(q[t, x] / p[t, x], max=1)",
    ),
    Fault("a tie accepts (google)", V, "accepted = uniforms < (p", "accepted = uniforms <= (p"),
    Fault("a tie accepts (deepmind)", V, "if not uniforms[t] < torch.clamp", "if not uniforms[t] <= torch.clamp"),
    Fault("guesses behind a rejection counted", V, "accepted.long().cumprod(0).sum()", "accepted.long().sum()"),
    Fault(
        "bonus from the row before (google)",
        V,
        "p_n = p.index_select(0, n.view(1)).squeeze(0)",
        "p_n = p.index_select(0, n.view(1).clamp(max=k - 1)).squeeze(0)",
    ),
    Fault("bonus from the row before (deepmind)", V, "return k, p[k]", "return k, p[k - 1]"),
    Fault(
        "bonus from the residual of the last place",
        V,
        "torch.where(n < k, residual(p_n, q_n), p_n)",
        "residual(p_n, q_n)",
    ),
    Fault(
        "draft law of the next place in the residual",
        V,
        "q_n = q.index_select(0, n.view(1).clamp(max=k - 1))",
        "q_n = q.index_select(0, (n + 1).view(1).clamp(max=k - 1))",
    ),
    Fault("one uniform for all guesses", V, "accepted = uniforms < (p", "accepted = uniforms[:1] < (p"),
    # --- sampling
    Fault(
        "temperature multiplies",
        S,
        "/ min(max(float(sampling.temperature), 1e-30), 1e30)",
        "* min(max(float(sampling.temperature), 1e-30), 1e30)",
    ),
    Fault("temperature squared", S, "max(float(sampling.temperature), 1e-30)", "max(sampling.temperature**2, 1e-30)"),
    Fault("temperature dropped", S, "if sampling.temperature != 1:", "if False:"),
    Fault("temperature 0 soft", S, "if sampling.temperature == 0:", "if False:"),
    Fault("top-k dropped", S, "if sampling.top_k and sampling.top_k < p.shape[-1]:", "if False:"),
    Fault("top-k one too many", S, "p.topk(sampling.top_k)", "p.topk(min(sampling.top_k + 1, p.shape[-1]))"),
    Fault("top-p dropped", S, "if sampling.top_p is not None and sampling.top_p < 1:", "if False:"),
    Fault(
        "top-p without the token that reaches it",
        S,
        "before >= max(float(sampling.top_p), 1e-30)",
        "values.cumsum(-1) > max(float(sampling.top_p), 1e-30)",
    ),
    Fault(
        "top-p not divided by what is left",
        S,
        "values / values.sum(-1, keepdim=True))\n    return p",
        "values)\n    return p",
    ),
    Fault("16-bit laws", S, "x = logits if logits.dtype == torch.float64 else logits.float()", "x = logits"),
    Fault("draws a token of probability 0 at u = 0", S, "* total[-1:], right=True)", "* total[-1:], right=False)"),
    Fault("uniforms of a block used twice", S, "self.used += k\n", "self.used += max(k - 1, 0)\n"),
    Fault(
        "every block of uniforms the same",
        S,
        "generator=self.generator, device=where",
        "generator=self.generator and torch.Generator().manual_seed(self.generator.initial_seed()), device=where",
    ),
    Fault("uniforms in torch's default type", S, ", device=where, dtype=torch.float32)", ", device=where)"),
    Fault(
        "seed ignored",
        S,
        "generator = torch.Generator().manual_seed(seed)",
        "generator = torch.Generator().manual_seed(0)",
    ),
    Fault(
        "caller's random state used in spite of a seed",
        S,
        "torch.rand(max(k, 256), generator=self.generator, ",
        "torch.rand(max(k, 256), ",
    ),
    # --- the cache
    Fault(
        "rollback keeps one token too many",
        C,
        "self.cache.crop(length - self.length)",
        "self.cache.crop(min(length - self.length + 1, -1))",
    ),
    Fault("rollback forgets nothing", C, "            self.cache.crop(length - self.length)  #", "            pass  #"),
    Fault("rollback does not count", C, "            self.length = length\n\n\nCAUSAL", "\n\nCAUSAL"),
    Fault(
        "rollback to a length never reached",
        C,
        'length <= self.length:\n            raise ValueError(f"cannot roll back to {length} tokens: the cache',
        'length:\n            raise ValueError(f"cannot roll back to {length} tokens: the cache',
    ),
    Fault(
        "work not counted",
        C,
        "        self.fed += len(ids)\n        return logits if keep",
        "        return logits if keep",
    ),
    Fault("two texts in one cache", C, "return CachedModel(self.model)", "return self"),
    Fault("recurrent models let in", C, 'or getattr(model, "_is_stateful", False)', "or False"),
    Fault("an interrupted pass leaves its traces", C, "if surplus > 0:", "if False:"),
    Fault("positions that change their meaning let in", C, "if border is not None and size", "if False and size"),
    Fault("models that read in both directions let in", C, "        check_causal(model)\n", ""),
    Fault("sliding windows let in", C, "if window is not None and longest >= window:", "if False:"),
    # --- the loop
    Fault(
        "target's cache keeps the token behind the rejection",
        D,
        "target.rollback(size + n_)",
        "target.rollback(size + min(n_ + 1, k))",
    ),
    Fault(
        "target's cache loses an accepted token",
        D,
        "target.rollback(size + n_)",
        "target.rollback(size + max(n_ - 1, 0))",
    ),
    Fault(
        "target fed without the text's last token",
        D,
        "target.feed(torch.cat([last, x]))",
        "target.feed(torch.cat([last * 0, x]))",
    ),
    Fault("draft not told of its verdict", D, "session.accept(n_, token)", "session.accept(0, token)"),
    Fault("budget one too many", D, "min(self.gamma, left - 1)", "min(self.gamma, left)"),
    Fault("budget one too few", D, "min(self.gamma, left - 1)", "max(min(self.gamma, left - 2), 0)"),
    Fault(
        "gamma ignored",
        D,
        "target, k = self.target, min(self.gamma, left - 1)",
        "target, k = self.target, min(4, left - 1)",
    ),
    Fault(
        "text goes on behind an accepted end-of-text", D, "inside = stop is not None and stop < n_", "inside = False"
    ),
    Fault(
        "end-of-text looked for in the last token only",
        D,
        "stop = next((i for i, t in enumerate(emitted) if t in self.eos), None)",
        "stop = len(emitted) - 1 if emitted[-1] in self.eos else None",
    ),
    Fault("end-of-text counted out", D, "accepted=stop + 1 if inside else n_", "accepted=stop if inside else n_"),
    Fault("end-of-text does not stop the loop", D, 'self.stop_reason, left = "eos", 0', 'self.stop_reason = "eos"'),
    Fault("end-of-text of the plain loop overlooked", D, "if eos and int(fed) in eos:", "if False:"),
    Fault(
        "stop reason always length",
        D,
        "stopped = bool(eos) and len(new) > 0 and int(new[-1]) in eos",
        "stopped = False",
    ),
    Fault("a cut round not marked", D, "cut=k < self.gamma or inside", "cut=False"),
    Fault("a plain round called a bonus", D, '"plain" if k == 0 else "bonus" if n_ == k', '"bonus" if n_ == k'),
    Fault(
        "target ignores its sampling",
        D,
        "p = self.sampling.probabilities(target",
        "p = Sampling().probabilities(target",
    ),
    Fault(
        "draft's own sampling dropped",
        D,
        "self.draft_sampling = draft_sampling or self.sampling",
        "self.draft_sampling = self.sampling",
    ),
    Fault(
        "sampling reaches the draft only where it is its own",
        D,
        "self.draft_sampling = draft_sampling or self.sampling",
        "self.draft_sampling = draft_sampling or Sampling()",
    ),
    Fault("rule dropped", D, "rule if callable(rule) else RULES[rule], trace", 'RULES["google"], trace'),
    Fault(
        "generator dropped",
        D,
        "self.source = as_source(generator, self.target.device)",
        "self.source = as_source(None, self.target.device)",
    ),
    Fault("attention mask dropped", D, "ids = ids[:, ids.shape[1] - keep :]", "pass"),
    Fault("training mode kept", D, "module.training = False", "module.training = True"),
    Fault("one transfer more a round", D, "emitted = [*drafted[:n_], token_]", "emitted = [*drafted[:n_], int(token)]"),
    Fault("alpha over all drafted", D, "alpha=ratio(accepted, accepted + rejected)", "alpha=ratio(accepted, drafted)"),
    Fault(
        "tokens a pass without the target's own",
        D,
        "emitted = accepted + sum(r.token is not None for r in rounds)",
        "emitted = accepted",
    ),
    Fault(
        "overlap over places that were not judged", D, "r.overlap[: r.accepted + (r.rejected is not None)]", "r.overlap"
    ),
    Fault(
        "the token drawn with a uniform that judged",
        D,
        TOKEN,
        "token = self.source.draw(law, size + n) if k == 0 else __import__('spec_lib').draw(law, u[-1])",
    ),
    Fault(
        "plain decoding draws from another law than its own", D, "fed = source.draw(p, ", "fed = source.draw(p.sqrt(), "
    ),
    Fault("look-ahead of the place before", D, "torch.minimum(p[k], ahead)", "torch.minimum(p[k - 1], ahead)"),
    Fault("another text on the same cache goes unnoticed", D, "if before[0] != size - 1:", "if False:"),
    Fault(
        "an end outside the vocabulary goes unnoticed",
        D,
        "if any(not 0 <= e < scored.vocab for e in eos):",
        "if False:",
    ),
    # --- the draft
    Fault(
        "draft draws from another law than it reports",
        G,
        "self.source.draw(laws[-1], ",
        "self.source.draw(laws[-1].sqrt(), ",
    ),
    Fault(
        "draft ignores its sampling",
        G,
        "q = self.sampling.probabilities(logits[: self.vocab])",
        "q = Sampling().probabilities(logits[: self.vocab])",
    ),
    Fault(
        "argmax draft with a soft q",
        G,
        "fed = self.source.draw(laws[-1], self.size + i)",
        "fed = laws[-1].argmax(-1, keepdim=True)",
    ),
    Fault(
        "draft's cache keeps its own last token's place",
        G,
        "fed = self.size + min(n, k - 1)",
        "fed = self.size + min(n, k)",
    ),
    Fault("draft's cache loses one more", G, "self.model.rollback(fed)", "self.model.rollback(fed - 1)"),
    Fault(
        "draft's last token never read after a full acceptance",
        G,
        "torch.cat([self.drafted[n - 1 :], token]) if n == k else token",
        "token",
    ),
    Fault(
        "draft reads an accepted token twice",
        G,
        "torch.cat([self.drafted[n - 1 :], token]) if n == k else token",
        "torch.cat([self.drafted[n - 1 : n], token]) if n else token",
    ),
    Fault("draft's size not moved on", G, "        self.size += n + 1\n", "        self.size += n\n"),
    Fault("draft's context crossed", G, "k = int(min(k, self.most - self.size + 1))", "k = int(k)"),
    Fault("tracing counts as work", G, "        self.model.fed = fed  # not work", "        # not work"),
    Fault(
        "tracing leaves its token in the cache",
        G,
        "        self.model.rollback(length)\n        self.model.fed",
        "        self.model.fed",
    ),
)


def plant(fault: Fault, project: Path) -> None:
    file = project / "spec_lib" / f"{fault.file}.py"
    text = file.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.name!r}: its place stands {text.count(fault.old)} times in {file.name}, not once")
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def caught_by(fault: Fault) -> str | None:
    """The first test that fails with the fault in, or None."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        top = "course.py pyproject.toml requirements.txt README.md"
        for name in ("spec_lib", "tests", "notebooks", "tools", *top.split()):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, project / name)
        plant(fault, project)
        files = [f"tests/{name}.py" for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *files]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True)
        failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", done.stdout, re.M)
        if done.returncode not in (0, 1, 2) or (done.returncode and not failed):
            raise SystemExit(f"{fault.name!r}: pytest itself went wrong\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return failed[1] if failed else None


def main(words: list[str]) -> int:
    chosen = [f for f in FAULTS if not words or any(word in f"{f.file} {f.name}" for word in words)]
    with tempfile.TemporaryDirectory() as folder:  # every place must be found before an hour is spent
        for fault in chosen:
            shutil.copytree(ROOT / "spec_lib", Path(folder) / "spec_lib", dirs_exist_ok=True)
            plant(fault, Path(folder))
    missed, started = [], time.time()
    for number, fault in enumerate(chosen, 1):
        check = caught_by(fault)
        missed += [] if check else [fault.name]
        print(f"{number:2}/{len(chosen)}  {fault.file:12}  {fault.name:60}  {check or 'CAUGHT BY NOTHING'}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught, {time.time() - started:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
