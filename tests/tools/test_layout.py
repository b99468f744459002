"""The library's layout: who imports whom, which files hold the method, and how long they may be."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parent.parent.parent / "spec_lib"

# From the ground up: a module imports only from the floors below its own, or from its neighbours in one package.
FLOORS = [
    ["numbers", "modes", "devices", "files", "hub", "missing_names", "matplotlib_folder", "interrupts"],
    ["sampling", "verification", "records", "architectures", "coupling", "theory"],
    ["protocols", "trees", "plain_gpt2"],
    ["abilities", "answers"],
    ["arguments"],
    ["cache", "graphs"],
    ["drafting", "tracing", "gpt2"],
    ["writer", "drafters", "rows"],
    ["row_models", "request"],
    ["batch"],
    ["decoding"],
    ["pairs"],
    ["classroom", "checks", "benchmark"],
    ["plots"],
    ["widgets", "device"],
    ["__init__"],
    ["options"],
    ["generating", "benching", "exporting", "server"],
    ["tiny", "__main__"],
]
METHOD = ["protocols", "sampling", "verification", "cache", "drafting", "decoding", "records", "theory", "tracing",
          "arguments", "answers", "architectures", "modes", "numbers", "gpt2", "graphs", "coupling", "trees",
          "writer", "abilities", "plain_gpt2",
          "rows", "row_models", "request", "batch"]  # fmt: skip
MOST_LINES = 220


def imports(file: Path) -> set[str]:
    """The modules of the library that a file imports, anywhere in it, as dotted names below spec_lib."""
    package = [*file.relative_to(LIBRARY).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name[9:] for alias in node.names if alias.name.startswith("spec_lib.")}
            found |= {"__init__" for alias in node.names if alias.name == "spec_lib"}
        elif isinstance(node, ast.ImportFrom):
            name = (node.module or "").split(".") if node.module else []
            if node.level:
                above = package[: len(package) - node.level + 1]
            elif name[:1] == ["spec_lib"]:
                above, name = [], name[1:]
            else:
                continue
            base = [*above, *name]
            for alias in node.names:
                whole = [*base, alias.name]
                path = LIBRARY.joinpath(*whole)
                found.add(".".join(whole if path.with_suffix(".py").exists() or path.is_dir() else base) or "__init__")
    return found


def graph() -> dict[str, set[str]]:
    """Each module's imports; a package's own __init__ is called by the package's name."""
    found = {}
    for file in sorted(LIBRARY.rglob("*.py")):
        parts = file.relative_to(LIBRARY).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = imports(file) - {name}
    return found


def floor(module: str) -> int:
    room = module.split(".")[0]
    return next(i for i, rooms in enumerate(FLOORS) if room in rooms)


def test_the_map_names_every_module_once():
    rooms = [room for rooms in FLOORS for room in rooms]
    assert sorted(rooms) == sorted({module.split(".")[0] for module in graph()})


@pytest.mark.parametrize("module", sorted(graph()))
def test_a_module_imports_only_from_below(module: str):
    for other in graph()[module]:
        inside = other.split(".")[0] == module.split(".")[0]
        assert inside or floor(other) < floor(module), f"{module} imports {other}"


def test_no_imports_go_in_a_circle():
    """Also inside a package, where neighbours may import each other."""
    arrows = graph()

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module in done:
            return
        for other in arrows.get(module, ()):
            walk(other, (*way, module))
        done.add(module)

    done: set[str] = set()
    for module in arrows:
        walk(module, ())


def test_a_circle_would_be_found(tmp_path, monkeypatch):
    """Two files that import each other inside a function are a circle, and one that climbs is seen."""
    (tmp_path / "numbers.py").write_text("def f():\n    from .theory import g\n")
    (tmp_path / "theory.py").write_text("from . import numbers\n")
    monkeypatch.setitem(globals(), "LIBRARY", tmp_path)
    assert graph() == {"numbers": {"theory"}, "theory": {"numbers"}}
    with pytest.raises(AssertionError, match="numbers -> theory -> numbers|theory -> numbers -> theory"):
        test_no_imports_go_in_a_circle()
    with pytest.raises(AssertionError, match="numbers imports theory"):
        test_a_module_imports_only_from_below("numbers")


@pytest.mark.parametrize("module", METHOD)
def test_the_method_is_short(module: str):
    lines = len(LIBRARY.joinpath(f"{module}.py").read_text("utf-8").splitlines())
    assert lines <= MOST_LINES, f"{module}.py has {lines} lines"


@pytest.mark.parametrize("package", ["server", "device"])
def test_a_package_that_says_which_file_does_what_leaves_none_out(package: str):
    said = ast.get_docstring(ast.parse((LIBRARY / package / "__init__.py").read_text("utf-8")))
    files = {file.stem for file in (LIBRARY / package).glob("*.py")} - {"__init__"}
    named = {a or b for a, b in re.findall(r"(?m)^(\w+)  |`(\w+)`", said)}
    assert files - named == set()
