"""Three notebooks on the simulated accelerator; all of them: `python -m tests.speed.notebooks_on_sim`."""

import nbformat
import pytest

from tests.helpers import sim
from tests.speed.notebooks_on_sim import error_of, notebooks

pytestmark = pytest.mark.skipif(not sim.SUPPORTED, reason="this PyTorch cannot register a device written in Python")
CHOSEN = ("03", "04", "05")  # the loop built by hand, both rules, and rounds timed on each device there is


@pytest.mark.parametrize("file", [f for f in notebooks() if f.name.startswith(CHOSEN)], ids=lambda f: f.stem[:2])
def test_a_notebook_runs_on_the_device(file):
    assert error_of(file) is None


@pytest.mark.parametrize(
    "cell, complaint",
    [
        ("import torch\npair.target(torch.tensor([[1, 2]]))", "Expected all tensors to be on the same device"),
        ("pair.draft = sl.pairs.load_pair('tiny').draft", "not on sim"),
    ],
)
def test_a_notebook_that_mixes_devices_is_told_of(tmp_path, cell, complaint):
    setup = next(c.source for c in nbformat.read(notebooks()[0], 4).cells if "sl.setup_line(" in c.source)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (setup, cell)])
    folder = tmp_path / "notebooks"
    folder.mkdir()
    nbformat.write(book, folder / "00_planted.ipynb")
    assert complaint in error_of(folder / "00_planted.ipynb")
