"""Notebooks executed with the pair on the simulated accelerator: `python -m tests.speed.notebooks_on_sim [00 05 ...]`.

Run by hand from the root; on two busy cores a notebook took from one minute to thirteen (13).  Each line says whether a
notebook ran without an error; the first error of one that did not is printed, and the exit code is then 1.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.helpers.paths import chosen

ROOT = Path(__file__).parent.parent.parent
BEFORE = f"""
import contextlib, sys
sys.path.insert(0, {str(ROOT)!r})
import spec_lib, torch
from tests.helpers import sim
connection = contextlib.ExitStack()
connection.enter_context(sim.connected())
load = spec_lib.load_pair
# The notebook's pair is on the device; one that is asked for by name stays where it is beside a GPU, too.
spec_lib.load_pair = lambda *names, **how: load(*names, **how) if names else load(**dict(how, device="sim"))
of_device, train = spec_lib.drafters.lessons._generator, spec_lib.drafters.train
spec_lib.drafters.lessons._generator = lambda seed, device="cpu": (
    sim.Generator().manual_seed(seed) if torch.device(device).type == "sim" else of_device(seed, device)
)
def on_the_cpu(head, lessons, *args, **how):
    # There are no gradients on the device: a head goes to the CPU to be trained, and comes back.
    target, there = head.target, lessons.ids.device
    head.to("cpu").target = tuple(w if w is None else w.cpu() for w in target)
    train(head, type(lessons)(lessons.ids.cpu(), lessons.hidden.cpu(), lessons.final.cpu()), *args, **how)
    head.to(there).target = target
    return head
spec_lib.drafters.train = on_the_cpu
"""
# Without this a notebook that quietly worked on the CPU would count as one that ran on the device.
AFTER = "assert {type(w) for m in (pair.target, pair.draft) for w in m.parameters()} == {sim.SimTensor}, 'not on sim'"


def notebooks() -> list[Path]:
    """The course's notebooks, in order."""
    return [file for file in sorted((ROOT / "notebooks").glob("*.ipynb")) if re.fullmatch(r"\d\d_\w+", file.stem)]


def error_of(file: Path, timeout: int = 1200) -> str | None:
    """Execute every code cell of a notebook in one kernel, on the device; the first error, or None.

    The file stays as it is.  timeout: seconds for each cell.
    """
    book = nbformat.read(file, as_version=4)
    book.cells = [nbformat.v4.new_code_cell(BEFORE), *book.cells, nbformat.v4.new_code_cell(AFTER)]
    client = NotebookClient(
        book, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(file.parent)}}
    )
    try:
        client.execute(env={**os.environ, "SPEC_PAIR": "tiny", "OMP_NUM_THREADS": "1"})
    except CellExecutionError as error:
        return re.sub(r"\x1b\[[\d;]*m", "", str(error))
    return None


def main(names: list[str]) -> int:
    """Run the notebooks whose names begin with one of `names`, or all."""
    failed, wanted = 0, chosen(names, [file.name for file in notebooks()])
    for file in notebooks():
        if file.name not in wanted:
            continue
        started = perf_counter()
        error = error_of(file)
        failed += error is not None
        print(f"{file.stem:40} {'ran' if error is None else 'FAILED'}, {perf_counter() - started:.0f} s", flush=True)
        if error is not None:
            print(error, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
