"""The source as a whole: nothing is silenced, and an install on Colab replaces nothing."""

import re
import tomllib

import nbformat
import pytest

from tests.helpers.notebooks import FILES, code
from tests.helpers.paths import ROOT


@pytest.mark.reported
def test_nothing_is_silenced_wholesale():
    """Notices were got rid of with a filter over everything, which hides the next real one.

    Right: nowhere in the library or the notebooks' code.
    """
    blanket = re.compile(r"simplefilter|filterwarnings|set_verbosity|logging\.disable|redirect_stderr|2>\s*/dev/null")
    sources = [f.read_text("utf-8") for f in sorted((ROOT / "spec_lib").rglob("*.py"))]
    sources += [cell.source for file in FILES for cell in code(nbformat.read(file, as_version=4))]
    assert len(sources) > 100
    assert [found for source in sources for found in blanket.findall(source)] == []


@pytest.mark.reported
def test_installing_on_colab_would_replace_nothing():
    """An install replaced packages that the running kernel had loaded, and broke it.

    Right: what Colab ships, and what runs here, meets every floor, so that pip has nothing to replace.
    Siblings: the reference versions meet them too.
    """
    from importlib.metadata import version

    from packaging.requirements import Requirement

    needs = [
        Requirement(r) for r in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    ]
    assert {"torch", "transformers", "numpy", "ipywidgets"} <= {r.name for r in needs}
    pins = [
        re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / f).read_text("utf-8"), re.M)
        for f in ("requirements.txt", ".ci/colab.txt")
    ]
    for r in needs:
        for shipped in (*map(dict, pins), {r.name: version(r.name)}):
            assert r.name not in shipped or r.specifier.contains(shipped[r.name], prereleases=True), r
