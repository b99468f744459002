"""Every code cell of the notebooks, run with pairs at the edges of what the course promises: any two causal models.

    python -m tests.classroom.odd_pairs [--pairs 512,own] [00 07 ...]

Some minutes a pair. The pairs are random Llamas and GPT-2s of two layers, made on the spot in a temporary folder. A
cell that raises is reported with its number; the cells after it are run all the same, as by a reader who goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.helpers.paths import chosen

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TOKENIZER = ROOT / "spec_lib" / "tiny" / "target"


def llama(folder: Path, seed: int, context: int = 1024, spread: float = 0.02, noise: float = 0.0) -> str:
    """Save a random Llama with the embedded pair's tokenizer; the path of its folder.

    spread: of the weights; the larger, the surer the model is of its next token. noise: added to the weights.
    """
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(TOKENIZER)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=context,
        initializer_range=spread,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator)
    folder = folder / f"seed-{seed}-context-{context}-spread-{spread}-noise-{noise}"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def gpt2(folder: Path, name: str, **config) -> str:
    """Save a random GPT-2 of another formula or size than the usual ones, likewise."""
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    sizes = {"vocab_size": 2048, "n_embd": 64, "n_head": 2, "n_layer": 2, "initializer_range": 0.1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(**sizes | {"bos_token_id": None, "eos_token_id": None} | config))
    model.save_pretrained(folder / name)
    PreTrainedTokenizerFast.from_pretrained(TOKENIZER).save_pretrained(folder / name)
    return str(folder / name)


def same_context(folder: Path, context: int) -> tuple[str, str]:
    return llama(folder, 1, context, spread=0.1), llama(folder, 2, context, spread=0.1)


PAIRS = {  # name: folder -> (target, draft)
    "512": lambda folder: same_context(folder, 512),
    "256": lambda folder: same_context(folder, 256),
    "128": lambda folder: same_context(folder, 128),
    "short draft": lambda folder: (llama(folder, 1, 2048), llama(folder, 2, 128)),
    "own": lambda folder: (llama(folder, 1, spread=0.1),) * 2,
    "almost own": lambda folder: (llama(folder, 1, spread=0.1), llama(folder, 1, spread=0.1, noise=1e-5)),
    "gpt2": lambda folder: (gpt2(folder, "128", n_positions=128), gpt2(folder, "inner", n_inner=37)),
    "gpt2 with relu": lambda folder: (gpt2(folder, "relu", activation_function="relu"), gpt2(folder, "usual")),
    "disjoint": lambda folder: (llama(folder, 1, spread=1.0), llama(folder, 2, spread=1.0)),
}


def cells(notebook: Path) -> list[tuple[int, str]]:
    """(index in the notebook, source) of the code cells."""
    book = json.loads(notebook.read_text(encoding="utf-8"))
    return [(i, "".join(c["source"])) for i, c in enumerate(book["cells"]) if c["cell_type"] == "code"]


def run(notebook: Path, space: dict) -> tuple[list[tuple[int, str]], str]:
    """Run all cells in `space`; ([(index of a cell that raised, what)], everything printed)."""
    raised, printed = [], io.StringIO()
    for index, source in cells(notebook):
        with contextlib.redirect_stdout(printed):
            print(f"[{index}]")
            try:
                exec(compile(source, f"{notebook.name}[{index}]", "exec"), space)
            except BaseException as error:  # SystemExit among them: the set-up cell's
                if isinstance(error, KeyboardInterrupt):
                    raise
                raised.append((index, f"{type(error).__name__}: {str(error).splitlines()[:1]}"))
    return raised, printed.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", help="of notebooks, for instance 00 07; default: all")
    parser.add_argument("--pairs", default=",".join(PAIRS), help=f"of {', '.join(PAIRS)}; default: all")
    parser.add_argument("--show", action="store_true", help="print what the cells print")
    given = parser.parse_args()
    wanted = chosen(given.numbers, [notebook.name for notebook in NOTEBOOKS])
    os.environ.update(HF_HUB_OFFLINE="1", MPLBACKEND="Agg", HF_HUB_DISABLE_PROGRESS_BARS="1")
    import matplotlib.pyplot as plt

    torch.set_num_threads(1)
    bad = 0
    os.chdir(ROOT / "notebooks")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.pairs.split(","):
            os.environ["SPEC_PAIR"] = ",".join(PAIRS[name](Path(folder)))
            for notebook in NOTEBOOKS:
                if notebook.name in wanted:
                    start = time.perf_counter()
                    raised, printed = run(notebook, {"__name__": "__main__"})
                    plt.close("all")
                    print(f"{name:12} {notebook.name[:2]}  {time.perf_counter() - start:4.0f} s", *raised, flush=True)
                    bad += len(raised)
                    if given.show:
                        print(printed)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
