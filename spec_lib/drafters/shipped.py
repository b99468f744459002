"""The head that the repository ships, for the embedded target; `python -m spec_lib.tiny.heads` trains it."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import files
from .heads import RecurrentHead

FOLDER = Path(__file__).parent.parent / "tiny" / "head"
FILE, SOME = "head.safetensors", 256  # every so many rows of the target's output matrix say whose head it is


def shipped_head(target: torch.nn.Module, folder: Path = FOLDER) -> RecurrentHead:
    """The recurrent head of the embedded target, in float32.

    target: the embedded target, or a Model around it.  ValueError for any other.
    """
    from safetensors.torch import load_file

    weights = load_file(Path(folder) / FILE)
    made_for = weights.pop("target").float()
    head = RecurrentHead(target, weights["up.weight"].shape[0])
    rows = head.target[1][::SOME].float().cpu()
    if rows.shape != made_for.shape or not torch.allclose(rows, made_for, rtol=1e-2, atol=1e-3):  # it may be in 16 bit
        raise ValueError("the shipped head is for the embedded target alone: train a RecurrentHead for another model")
    head.load_state_dict(weights)
    return head.requires_grad_(False)


def save_head(head: RecurrentHead, folder: Path) -> None:
    """What `shipped_head` reads: the weights in 16 bit."""
    from safetensors.torch import save

    weights = {**head.state_dict(), "target": head.target[1][::SOME]}
    small = {name: w.detach().to("cpu", torch.float16).contiguous() for name, w in weights.items()}
    files.save({folder / FILE: save(small, metadata={"format": "pt"})})  # whole, or what was there stays
