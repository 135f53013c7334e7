"""The command, with an engine that makes the records: what it says, writes and ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tests.harness import small_stack
from tests.harness.conftest import ROOT
from tests.harness.observations import RAISED, observed, record
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.checking import importing
from trl_compat.checking.importing import Imports
from trl_compat.cli import cli
from trl_compat.errors import EXIT_INTERRUPTED, BadInput, HarnessError
from trl_compat.machine import gpus
from trl_compat.results import read
from trl_compat.running import matrix_run
from trl_compat.running.campaign import Campaign, RunSpec
from trl_compat.running.pytest_plugin import ReproductionFile
from trl_compat.running.store import CellRecord, ResolvedStack
from trl_compat.stacks.environments import interpreters, locks
from trl_compat.stacks.held import needs as held

Engine = Callable[..., bool]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stack") / "venv"
    small_stack.make(folder)
    small_stack.remove(folder, "deepspeed")
    return folder


@pytest.fixture(autouse=True)
def by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than in a checkout, on a machine without GPUs, with imports that work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(importing, "imports", lambda *_: Imports({}))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # put back what the command sets
    monkeypatch.setattr(gpus, "installed", lambda: [])


def as_expected(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
    for cell in todo:
        seen = observed(record(), record())
        match cell.expectation.outcome:
            case Outcome.REPRODUCED:
                seen = observed(RAISED, RAISED)
            case Outcome.NOT_APPLICABLE:
                why = {"exception": "NotApplicable", "message": "not installed", "where": "a:b"}
                gone = record(status="not-applicable", error=why)
                seen = observed(gone, gone)
        made = Campaign(order)
        stack = order.matrix.stacks[cell.stack].in_place
        assert stack is not None
        surroundings = ResolvedStack(lock_sha256=stack.sha256, packages=stack.packages)
        made.store.write(
            CellRecord(
                key=made.key(cell, stack.sha256),
                cell_id=cell.id,
                surroundings=surroundings,
                observations=(seen,),
                run=order.run,
            )
        )
    return False


def check(
    venv: Path, monkeypatch: pytest.MonkeyPatch, *more: str, engine: Engine = as_expected
) -> int:
    monkeypatch.setattr(matrix_run, "execute", engine)
    words = ["check", "--python", str(venv / "bin" / "python"), "--device", "cpu", *more]
    try:
        with cli.make_context("trl-compat", words) as context:
            cli.invoke(context)
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("it should end with its exit code")


def results(folder: Path = Path("trl-compat-check")) -> dict[str, Any]:
    found = read(folder / "results.json")
    assert found is not None
    return found.model_dump(mode="json")


ONE = ("--failure", "grpo-fsdp-ref-device", "--variant", "ddp", "--model", "tiny-qwen2")


def test_results_and_reports_are_those_of_the_matrix(
    venv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(venv, monkeypatch, *ONE) == 0
    document = results()
    ((name, stack),) = document["stacks"].items()
    assert name.startswith("installed-trl-1.16.0-")
    assert (stack["trl"], stack["torch"], stack["deepspeed"]) == ("1.16.0", "2.13.0+cpu", "")
    assert [cell["outcome"] for cell in document["cells"]] == ["pass"]
    assert (Path("trl-compat-check") / "compatibility.html").is_file()
    said = capsys.readouterr().out
    assert "trl 1.16.0, torch 2.13.0+cpu" in said
    assert "without deepspeed" in said
    assert "nothing in the environment changed (" in said


def test_the_default_needs_no_checkout_and_asks_what_is_not_installed_of_nobody(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Cell] = []

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        asked.extend(todo)
        return as_expected(order, todo)

    check(venv, monkeypatch, engine=engine)
    deepspeed = [cell for cell in asked if cell.failure == "ppo-zero3-save"]
    assert deepspeed
    assert {cell.expectation.outcome for cell in deepspeed} == {Outcome.NOT_APPLICABLE}
    assert {cell.fix for cell in deepspeed} == {None}
    assert {cell.model for cell in asked} == {"tiny-qwen2"}
    assert {"accumulation", "saved"} <= {cell.failure for cell in asked}  # invariants, too


def test_the_line_beside_a_cell_runs_it_again_in_this_environment(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(venv, monkeypatch, *ONE, "--reports", "here", "--timeout", "99")
    (cell,) = results(Path("here"))["cells"]
    assert " check " in cell["command"]
    assert "--stack" not in cell["command"]
    assert f"--python {venv}/bin/python --reports here --timeout 99" in cell["command"]
    words = cell["command"].split(" check ")[1].split()
    monkeypatch.setattr(matrix_run, "execute", as_expected)
    with (
        pytest.raises(SystemExit) as end,
        cli.make_context("trl-compat", ["check", *words]) as context,
    ):
        cli.invoke(context)
    assert end.value.code == 0
    assert len(results(Path("here"))["cells"]) == 1  # the same cell again, not another


def test_what_is_known_is_not_run_again_until_a_file_changes(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        ran.append(len(todo))
        return as_expected(order, todo)

    check(venv, monkeypatch, *ONE, engine=engine)
    check(venv, monkeypatch, *ONE, engine=engine)
    assert ran == [1]
    path = small_stack.site(venv) / "trl" / "more.py"
    before = path.read_bytes()
    path.write_bytes(before + b"# patched by hand\n")
    check(venv, monkeypatch, *ONE, engine=engine)
    path.write_bytes(before)
    assert ran == [1, 1]
    assert len(results()["stacks"]) == 2  # as it was, and as it is


def test_an_environment_that_changes_meanwhile_makes_the_run_fail(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = small_stack.site(venv) / "trl" / "new.py"

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        added.write_text("")
        return as_expected(order, todo)

    with pytest.raises(HarnessError, match=r"trl/new\.py was added.*run the same command again"):
        check(venv, monkeypatch, *ONE, engine=engine)
    added.unlink()


def test_an_interrupted_check_says_so_by_its_exit_code(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(venv, monkeypatch, *ONE, engine=lambda *_: True) == EXIT_INTERRUPTED


def test_nobody_is_asked_whether_it_could_be_installed(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(*_: Any) -> None:
        raise AssertionError("it should be used as it is")

    monkeypatch.setattr(locks, "interpreter_of", asks)
    monkeypatch.setattr(interpreters, "find", asks)
    monkeypatch.setattr(held, "missing", lambda stacks: asks() if stacks else [])
    assert check(venv, monkeypatch, *ONE) == 0


@pytest.mark.parametrize(("visible", "usable"), [("", 0), ("0", 1), ("0,1", 1), ("0", 8)])
def test_fewer_gpus_than_ranks_are_refused(
    venv: Path, monkeypatch: pytest.MonkeyPatch, visible: str, usable: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(importing, "imports", lambda *_: Imports({}, usable))
    can = min(usable, len([one for one in visible.split(",") if one]))
    told = rf"2 ranks need 2 GPUs, and torch 2\.13\.0\+cpu there can use {can}"
    with pytest.raises(BadInput, match=told):
        check(venv, monkeypatch, *ONE, "--device", "cuda")


def test_gpus_that_suffice_are_used(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(importing, "imports", lambda *_: Imports({}, 2))
    check(venv, monkeypatch, *ONE, "--device", "auto")
    assert [cell["backend"] for cell in results()["cells"]] == ["nccl"]


def test_one_gpu_is_shared_by_the_ranks_of_a_cell_and_results_say_so(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(importing, "imports", lambda *_: Imports({}, 1))
    check(venv, monkeypatch, *ONE, "--device", "auto", "--share-gpu")
    (cell,) = results()["cells"]
    assert (cell["backend"], cell["evidence"]) == (
        *("gloo on a shared GPU", "cuda-gloo × 2, shared GPU"),
    )
    assert "--device cuda --share-gpu" in cell["command"]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_something_else_fills_is_told_and_nothing_is_run(
    venv: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    full = gpus.Gpu("1", "GPU-1", "H200", total=140 * 2**30, free=2**30)
    roomy = gpus.Gpu("0", "GPU-0", "H200", total=140 * 2**30, free=130 * 2**30)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(gpus, "installed", lambda: [roomy, full])
    monkeypatch.setattr(importing, "imports", lambda *_: Imports({}, 2))
    with pytest.raises(BadInput, match=r"GPU 1 \(H200\) has 1\.0 of 140 GiB free"):
        check(venv, monkeypatch, *ONE, "--device", device)
    assert not Path("trl-compat-check", "results.json").exists()


def test_an_unknown_failure_is_refused_with_the_nearest(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="ppo-zero3-save"):
        check(venv, monkeypatch, "--failure", "ppo-zero3-sav")


def test_cells_of_one_failure_stay_on_one_worker(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stack can use several workers; a control stays with the cells that it vouches for."""
    orders: list[RunSpec] = []

    def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        orders.append(order.model_copy(update={"cells": todo}))
        return as_expected(order, todo)

    check(venv, monkeypatch, "--failure", "grpo-fsdp-ref-device", "--jobs", "2", engine=engine)
    assert orders[0].by_failure
    groups = set()
    for cell in orders[0].cells:
        file = ReproductionFile.__new__(ReproductionFile)
        groups.add(file.group(orders[0], cell))
        assert file.group(orders[0].model_copy(update={"by_failure": False}), cell) == cell.stack
    assert len(groups) == 1


@pytest.mark.parametrize("option", ["--stack", "--matrix"])
def test_options_of_the_matrix_that_mean_nothing_here_are_refused(option: str) -> None:
    with pytest.raises(click.UsageError):
        cli.commands["check"].make_context("check", [option, "1"])


def test_its_own_results_are_no_part_of_the_checkout() -> None:
    assert "trl-compat-check/" in (ROOT / ".gitignore").read_text().splitlines()
