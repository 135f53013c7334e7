"""A real stack whose environment is damaged while its cells run: the whole command says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.fake_project import STACK, cells, make_project
from trl_compat.stacks.environments import build, cache, damage
from trl_compat.stacks.environments.damage import Depth
from trl_compat.stacks.matrix import Stack

pytestmark = pytest.mark.matrix
# The command, with a hand that reaches into the environment when the first cell is over.
SCRIPT = """
import shutil, sys
from pathlib import Path
from trl_compat.cli import main
from trl_compat.running.display import Display

folder, harm = Path(sys.argv.pop(1)), sys.argv.pop(1)
(site,) = folder.glob("lib/python*/site-packages")
show, seen = Display.pytest_runtest_logreport, []

def show_and_harm(self, report):
    show(self, report)
    if report.when == "call" and not seen:
        seen.append(report)
        exec(harm)

Display.pytest_runtest_logreport = show_and_harm
main()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a stack in a cache of the test's own, its files shared with the other.

    Files there may be removed and replaced, never written into.
    """
    made = build.ensure("trl-1.16.0", Stack.model_validate(STACK))
    shared, own = cache.root(), tmp_path / "cache"
    environment = own / "environments" / f"fake-stack-{made.lock.sha256[:12]}"
    ignored = shutil.ignore_patterns("bytecode", "pycache", "extensions", build.IN_USE)
    shutil.copytree(made.folder, environment, symlinks=True, copy_function=link, ignore=ignored)
    for name in ("locks", "wheels"):
        shutil.copytree(shared / name, own / name, copy_function=link)
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(own))
    return environment


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def project(root: Path) -> Path:
    """Three cells, in this order, all as their advisories say."""
    made = make_project(root, ["passes", "takes_trl", "wants_ppo"])
    advisory = made / "advisories" / "wants-ppo.yaml"
    expected = {**yaml.safe_load(advisory.read_text()), "available": {"trl": "<=1.12.0"}}
    advisory.write_text(yaml.safe_dump(expected))
    return made


def run(root: Path, folder: Path, harm: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(folder), harm, "--project", str(root), "matrix"]
    return subprocess.run(
        [*command, "--jobs", "1", *more], capture_output=True, text=True, check=False
    )


def outcomes(root: Path) -> dict[str, str]:
    return {name: cell["outcome"] for name, cell in cells(root).items()}


SOUND = {"wants-ppo": "not-applicable", "takes-trl": "pass", "passes": "pass"}


@pytest.mark.parametrize(
    ("harm", "said", "more"),
    [
        ("shutil.rmtree(next(site.glob('trl-*.dist-info')))", "trl 1.16.0: its dist-info", []),
        (
            "folder.rename(folder.with_name('away'))",
            "is missing",
            ["--torchrun", "--repeat", "2"],
        ),
        ("(site / 'trl/trainer/sft_config.py').unlink()", "sft_config.py is missing", []),
    ],
)
def test_nothing_false_is_said_or_kept(
    tmp_path: Path, folder: Path, harm: str, said: str, more: list[str]
) -> None:
    root = project(tmp_path / "project")
    done = run(root, folder, harm, *more)
    found = outcomes(root)
    assert done.returncode == 70, done.stdout + done.stderr
    assert found["takes-trl"] == "harness-error"
    assert found["wants-ppo"] in ("harness-error", "not-applicable")
    assert "TRL has no PPO trainer yet" not in cells(root)["wants-ppo"]["reason"]
    assert "other-failure" not in found.values()
    damaged: dict[str, Any] = cells(root)["takes-trl"]
    assert said in damaged["reason"]
    assert "run the same command again" in damaged["reason"]
    again = run(root, folder, "pass", *more)
    assert again.returncode == 0, again.stdout + again.stderr
    assert outcomes(root) == SOUND
    made = damage.noted(folder)
    assert made is not None
    assert damage.find(folder, made, Depth.CONTENTS) == []


def test_what_was_damaged_before_is_made_again_before_anything_runs(
    tmp_path: Path, folder: Path
) -> None:
    root = project(tmp_path / "project")
    (site,) = folder.glob("lib/python*/site-packages")
    shutil.rmtree(next(site.glob("trl-*.dist-info")))
    run(root, folder, "pass")
    assert outcomes(root) == SOUND
