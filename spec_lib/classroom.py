"""What a notebook's set-up cell does besides loading a pair."""

from __future__ import annotations

import torch

from .matplotlib_folder import choose_folder
from .missing_names import explain_missing_names
from .pairs import Pair


def setup_line(pair: Pair) -> str:
    """The one line that a notebook's set-up cell prints.  From then on a missing name says which cell makes it."""
    import transformers

    explain_missing_names()
    choose_folder()  # before a cell draws the first figure
    where = torch.cuda.get_device_name(pair.device) if pair.device.type == "cuda" else str(pair.device)
    return f"{where} | torch {torch.__version__} | transformers {transformers.__version__} | {pair.name}"
