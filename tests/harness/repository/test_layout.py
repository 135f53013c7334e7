"""The package's rooms stand on floors: a module imports from rooms below its own, never back up."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.harness.conftest import HARNESS, ROOT

PACKAGE = ROOT / "src" / "trl_compat"
# From the ground up, as the data goes: what is known and what can be run, the cells of both, what
# is run and what comes out.
FLOORS = (
    ("conditions", "errors", "packages", "ranges", "runtime", "text", "verifying"),
    ("files", "fixes", "machine", "shipped"),
    ("advisories", "stacks"),
    ("cells", "usage"),
    ("matching", "results"),
    ("pytest", "report", "upgrade"),
    ("doctor", "publishing", "running"),
    ("bisect", "checking", "gate"),
    ("refresh",),
    ("cli",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}


def imports(name: str) -> Iterator[str]:
    """The modules of the package that one imports anywhere in its text."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("trl_compat"):
                base = module.removeprefix("trl_compat").lstrip(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield inner if inner in MODULES else base
            case ast.Import():
                names = [alias.name for alias in node.names]  # a room may be called like a library
                ours = (one.removeprefix("trl_compat.") for one in names if "trl_compat." in one)
                yield from (one for one in ours if one in MODULES)


def room(name: str) -> str:
    return name.partition(".")[0]


def test_every_room_has_its_floor() -> None:
    assert {room(name) for name in MODULES} == set(FLOOR)


@pytest.mark.parametrize("name", sorted(FLOOR))
def test_a_room_imports_from_below_only(name: str) -> None:
    back = [
        f"{module} imports {other}"
        for module in MODULES
        if room(module) == name
        for other in imports(module)
        if other and room(other) != name and FLOOR[room(other)] >= FLOOR[name]
    ]
    assert back == []


def test_no_imports_go_in_a_circle() -> None:
    graph = {name: {one for one in imports(name) if one and one != name} for name in MODULES}
    faces = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    # A package's face hands on what its modules define, and is not imported by these for that.
    for name in graph:
        graph[name] -= {face for face in faces if name.startswith(f"{face}.")}
    TopologicalSorter(graph).prepare()


def test_the_root_has_only_what_every_room_shares() -> None:
    loose = [path.stem for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= 6


def test_no_module_has_more_than_400_lines() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    paths = [ROOT / name for name in listed if (ROOT / name).is_file()]
    long = [path.name for path in paths if len(path.read_bytes().splitlines()) > 400]
    assert long == []


def test_the_tests_mirror_the_rooms() -> None:
    folders = {path.parent for path in HARNESS.rglob("test_*.py")} - {HARNESS}
    rooms = {name for name in FLOOR if (PACKAGE / name).is_dir()}
    assert {folder.name for folder in folders} <= {*rooms, "repository"}


def test_no_test_module_lends_its_helpers() -> None:
    lent = [
        str(path.relative_to(ROOT))
        for path in Path(HARNESS).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and ".test_" in f".{node.module}"
    ]
    assert lent == []
