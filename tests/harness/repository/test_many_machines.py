"""The examples of docs/many-machines.md: what they call exists, and what they do adds up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from tests.harness import machines
from tests.harness.conftest import ROOT
from tests.harness.machines import OURS, Example, Step, example
from tests.harness.written import cells_in
from trl_compat.cells.shards import Shard
from trl_compat.cli import cli

NAMES = ("github", "slurm")
# Leaves the words of its call in a file.
RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > "$CALLED"
"""
CHANGING = {"started_at", "seconds", "run", "peak_memory", "log_line"}


def called(step: Step, folder: Path, **more: str) -> list[str]:
    """The words with which a script calls trl-compat."""
    recorder = folder / ".venv" / "bin" / "trl-compat"
    recorder.parent.mkdir(parents=True, exist_ok=True)
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    process = step.start(folder, recorder.parent, CALLED=str(folder / "called"), **more)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return (folder / "called").read_text().splitlines()


def parsed(words: list[str]) -> click.Context:
    return cli.commands[words[0]].make_context(
        words[0], words[1:], parent=click.Context(cli, obj=ROOT)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_shards_of_an_example_are_all_there_are(name: str, tmp_path: Path) -> None:
    contexts = [parsed(called(step, tmp_path)) for step in example(name).shards]
    shards = [Shard.parse(context.params["shard_text"]) for context in contexts]
    assert shards == [Shard(n, len(shards)) for n in range(1, len(shards) + 1)]
    assert len({context.params["reports"] for context in contexts}) == len(shards)
    assert {context.params["profile"] for context in contexts} == {"default"}


@pytest.mark.parametrize("name", NAMES)
def test_every_shard_of_an_example_is_merged(name: str, tmp_path: Path) -> None:
    given = example(name)
    folders = {parsed(called(step, tmp_path)).params["reports"] for step in given.shards}
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    merged = parsed(called(given.merge, tmp_path)).params
    assert set(merged["given"]) == folders
    assert merged["into"] == Path("reports")


def test_the_page_shows_the_jobs_of_the_workflow() -> None:
    (text,) = [part.split("```")[0] for part in machines.PAGE.split("```yaml\n")[1:]]
    real = machines.workflow(machines.WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    for name, shown in machines.workflow(text)["jobs"].items():
        for key in ("strategy", "needs", "if", "runs-on"):
            assert shown.get(key) == real[name].get(key)
        steps: list[dict[str, Any]] = real[name]["steps"]
        for step in shown["steps"]:
            if "checkout" not in step.get("uses", ""):
                assert step in steps


def checkout(folder: Path) -> Path:
    for name in ("advisories", "invariants", "tests/reproductions", "tiny_models"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "matrix.yaml", folder)
    return folder


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each machine a cache of its own."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The cells of the same selection, run by one machine."""
    folder = checkout(tmp_path_factory.mktemp("whole"))
    words = ["trl-compat", "matrix", "--profile", "smoke", "--device", "cpu"]
    env = {**os.environ, "PATH": f"{OURS}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return lasting(folder / "reports")


def lasting(reports: Path) -> dict[str, dict[str, Any]]:
    """The cells without what differs from run to run."""
    found = {}
    for name, cell in cells_in(reports).items():
        kept = {key: value for key, value in cell.items() if key not in CHANGING}
        kept["attempts"] = [{**attempt, "seconds": 0} for attempt in cell["attempts"]]
        found[name] = kept
    return found


def run_all(given: Example, folder: Path, caches: Path) -> None:
    """Runs the shards of an example as processes beside each other, and then its merge."""
    started = [
        step.start(
            folder,
            OURS,
            PROFILE="smoke",
            TRL_COMPAT_CACHE=str(caches / str(number) / "trl-compat"),
            SLURM_TMPDIR=str(caches / str(number)),
        )
        for number, step in enumerate(given.shards)
    ]
    for process in started:
        output, _ = process.communicate()
        assert process.returncode == 0, output
    merging = given.merge.start(folder, OURS)
    output, _ = merging.communicate()
    assert merging.returncode == 0, output


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_an_example_gives_the_results_of_one_machine(
    name: str, whole: dict[str, dict[str, Any]], caches: Path, tmp_path: Path
) -> None:
    folder = checkout(tmp_path)
    run_all(example(name), folder, caches)
    assert lasting(folder / "reports") == whole
    head = json.loads((folder / "reports" / "results.json").read_text())
    assert len({run["command"] for run in head["runs"]}) > 1
    words = [str(OURS / "trl-compat"), "report", "--check"]
    assert subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0
