"""What was observed is used again only if nothing of ours that a rank can import has changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from tests.harness.fake_project import make_project
from tests.harness.fake_project import run as run_command
from trl_compat import advisories
from trl_compat.cells.plan import Cell, Selection, plan
from trl_compat.files import project
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.execution import bundle
from trl_compat.running.execution.importable import files_of_a_cell
from trl_compat.running.execution.watch import Limits
from trl_compat.stacks import matrix

FIX = "trl_compat/fixes/{}.py"


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """Every cell of the full profile."""
    table = matrix.load(ROOT / "matrix.yaml")
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    return plan(table, catalogue, Selection(profile="full")).cells


@pytest.fixture(scope="module")
def kinds(cells: list[Cell]) -> list[Cell]:
    """A cell of each failure with each of its fixes."""
    return list({(cell.failure, cell.entry): cell for cell in cells}.values())


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package, which is what cells are given."""
    copy = tmp_path / "trl_compat"
    shutil.copytree(bundle.SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    monkeypatch.setattr(bundle, "SOURCE", copy)
    loaded = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    table = matrix.load(ROOT / "matrix.yaml")
    monkeypatch.setattr(advisories, "load", lambda *_: loaded)  # once: neither is edited
    monkeypatch.setattr(matrix, "load", lambda *_: table)
    return tmp_path


def test_a_worker_reads_the_matrix_and_the_records_as_the_command_did(cells: list[Cell]) -> None:
    order = order_of(cells)
    read = RunSpec.model_validate_json(order.model_dump_json(by_alias=True))
    assert read == order


def order_of(cells: list[Cell]) -> RunSpec:
    where = project.at(ROOT)
    return RunSpec(
        root=where.root,
        matrix_file=where.matrix_file,
        reports=where.reports,
        state=where.state,
        matrix=matrix.load(where.matrix_file),
        catalogue=advisories.load(where.advisories, where.reproductions),
        models={"tiny-mistral": "m", "tiny-qwen2": "q"},
        cells=cells,
        limits=Limits(),
    )


def keys(cells: list[Cell]) -> dict[str, str]:
    campaign = Campaign(order_of([]))
    return {cell.id: campaign.key(cell, "lock") for cell in cells}


def concerned(path: str, cells: list[Cell]) -> set[str]:
    """The cells whose ranks can import a file of the bundle, said from the layout alone."""
    if path.startswith("trl_compat/runtime/losses/"):
        shared = Path(path).stem in ("__init__", "kto", "reward")
        users = {"gradient"} | ({"accumulation"} if shared else set())
        return {cell.id for cell in cells if cell.failure in users}
    if not path.startswith("trl_compat/fixes/"):
        return {cell.id for cell in cells}
    module = Path(path).stem
    # Nothing of the runtime imports a fix, so the package itself counts for them only.
    entry = "trl_compat.fixes." + (f"{module}:" if module != "__init__" else "")
    found = {cell.id for cell in cells if (cell.entry or "").startswith(entry)}
    # One of its wrong fixes is made of the right one.
    if module in ("unwrap_double_yield", "__init__"):
        found |= {cell.id for cell in cells if cell.failure == "unwrap-double-yield"}
    return found


def test_every_file_of_the_bundle_counts_for_the_cells_that_can_import_it(
    ours: Path, kinds: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(kinds)
    for path, content in bundle.contents().items():
        with monkeypatch.context() as patch:
            if path in ("rank_main.py", "preload_main.py"):
                patch.setattr(bundle, Path(path).stem.upper(), content.decode() + "# edited\n")
            else:
                (ours / path).write_bytes(content + b"# edited\n")
            after = keys(kinds)
            changed = {cell.id for cell in kinds if after[cell.id] != before[cell.id]}
            assert changed == concerned(path, kinds), path
        if (ours / path).exists():
            (ours / path).write_bytes(content)
    assert keys(kinds) == before


def test_a_newcomer_who_edits_one_fix_runs_few_cells_again(cells: list[Cell]) -> None:
    fixes = {path for path in bundle.contents() if path.startswith("trl_compat/fixes/")}
    for path in fixes - {FIX.format("__init__")}:
        assert len(concerned(path, cells)) < len(cells) / 2, path


def test_a_cell_is_given_the_files_that_are_digested_and_no_other(tmp_path: Path) -> None:
    bundle.make(tmp_path)
    made = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert made == set(bundle.contents())
    assert all((tmp_path / path).read_bytes() == text for path, text in bundle.contents().items())


SMALL = {
    "trl_compat/__init__.py": b"",
    "trl_compat/runtime/__init__.py": b"",
    "trl_compat/fixes/__init__.py": b"",
    "trl_compat/fixes/a.py": b"from . import b\n",
    "trl_compat/fixes/b.py": b"def apply():\n    from trl_compat.fixes.c import x\n",
    "trl_compat/fixes/c.py": b"",
    "trl_compat/fixes/d.py": b"",
}
BASE = frozenset(path for path in SMALL if "/fixes/" not in path)


@pytest.mark.parametrize(
    ("reproduction", "entry", "also"),
    [
        (b"", None, ""),
        (b"", "reproduction:wrong", ""),
        (b"", "trl_compat.fixes.c:apply", "c"),
        (b"", "trl_compat.fixes.a:apply", "abc"),
        (b"import trl_compat.fixes.d", None, "d"),
        (b"def f():\n    from trl_compat.fixes import d as e", None, "d"),
        (b"import importlib\nimportlib.import_module('trl_compat.fixes.d')", None, "d"),
        (b"from trl_compat.fixes import *", None, "abcd"),
        # What only running it tells: everything counts.
        (b"import importlib\nimportlib.import_module(name)", None, "abcd"),
        (b"__import__(name='trl_compat.' + x)", None, "abcd"),
        (b"open(__file__)", None, "abcd"),
        (b"print 'no Python 3'", None, "abcd"),
        (b"import importlib\nimportlib.import_module('trl.trainer')", None, ""),
    ],
)
def test_what_a_cell_can_import_is_read_from_its_source(
    reproduction: bytes, entry: str | None, also: str
) -> None:
    found = files_of_a_cell(SMALL, reproduction, entry)
    package = {FIX.format("__init__")} if also else set()
    assert found == BASE | package | {FIX.format(name) for name in also}


def test_a_loss_of_the_runtime_counts_for_the_cells_that_import_it() -> None:
    losses = "trl_compat/runtime/losses/{}.py".format
    own = {losses(name): b"" for name in ("__init__", "kto", "reward")}
    files = {**SMALL, "trl_compat/runtime/sft.py": b"", **own}
    runtime = BASE | {"trl_compat/runtime/sft.py"}
    assert files_of_a_cell(files, b"from trl_compat.runtime import sft", None) == runtime
    found = files_of_a_cell(files, b"from trl_compat.runtime.losses import kto", None)
    assert found == runtime | {losses("__init__"), losses("kto")}


def test_files_that_are_no_python_always_count() -> None:
    files = {**SMALL, "trl_compat/fixes/table.json": b"{}"}
    assert files_of_a_cell(files, b"", None) == BASE | {"trl_compat/fixes/table.json"}


TOLD = """

_scenario = scenario


def scenario(rank):
    import sys

    try:
        _scenario(rank)
    finally:
        files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        rank.observe("files", [file for file in files if file])
"""


def of_the_bundle(files: list[str]) -> set[str]:
    marker = "/bundle/"
    return {file.partition(marker)[2] for file in files if marker in file}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "how",
    [
        ("--failure", "grpo-zero3-optimizer", "--failure", "unwrap-double-yield"),
        ("--failure", "grpo-zero3-optimizer", "--variant", "zero3-train", "--torchrun"),
    ],
    ids=["preloaded", "torchrun"],
)
def test_real_ranks_import_nothing_of_ours_that_is_not_digested(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    def edit(folder: Path) -> None:
        for path in (folder / "tests" / "reproductions").glob("*.py"):
            path.write_text(path.read_text() + TOLD)

    root = a_copy(tmp_path, edit)
    done = run_command(root, "--stack", "trl-0.15.2", "--model", "tiny-qwen2", *how)
    assert done.returncode == 0, done.stdout + done.stderr
    catalogue = advisories.load(root / "advisories", root / "tests" / "reproductions")
    table = matrix.load(root / "matrix.yaml")
    entries = {c.id: c for c in plan(table, catalogue, Selection(profile="full")).cells}
    seen = 0
    for path in (root / ".trl-compat" / "cells").glob("*.json"):
        record = json.loads(path.read_bytes())
        cell = entries[record["cell_id"]]
        module = catalogue.reproduction(cell.failure).module
        text = (ROOT / "tests" / "reproductions" / f"{module}.py").read_bytes()
        digested = files_of_a_cell(bundle.contents(), text, cell.entry)
        for rank in record["observations"][0]["ranks"].values():
            imported = of_the_bundle(rank["observations"]["files"])
            assert "trl_compat/runtime/rank.py" in imported
            assert imported <= digested, cell.id
            seen += cell.entry is not None
    assert seen, "no cell with a fix was run"


def a_copy(folder: Path, edit: Callable[[Path], None]) -> Path:
    """A copy of this project."""
    root = make_project(folder / "project", [])
    for name in ("advisories", "invariants", "tests/reproductions"):
        shutil.rmtree(root / name, ignore_errors=True)
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "matrix.yaml", root)
    edit(root)
    return root


def test_what_starts_ranks_on_a_shared_gpu_concerns_those_cells_only(
    kinds: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = ("cpu", "cuda", "cuda-shared")
    each = [kinds[0].model_copy(update={"device": device}) for device in devices]
    before = keys(each)
    other = tmp_path / "main.py"
    other.write_bytes(bundle.SHARED_GPU_MAIN.read_bytes() + b"\n")
    monkeypatch.setattr(bundle, "SHARED_GPU_MAIN", other)
    after = keys(each)
    assert [cell.device for cell in each if before[cell.id] != after[cell.id]] == ["cuda-shared"]
