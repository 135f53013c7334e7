"""Whole runs of the command over misbehaving reproductions, in a project made for each test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.harness.fake_project import STACK, cells, command, make_project, run
from trl_compat.errors import EXIT_INTERRUPTED

pytestmark = pytest.mark.matrix


def wait_for(what: Callable[[], bool], limit: float) -> bool:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.1)
    return False


def test_a_surprise_is_run_again_alone_by_torchrun(tmp_path: Path) -> None:
    root = make_project(tmp_path, ["differs_by_launch", "vacuous", "passes"])
    done = run(root)
    assert done.returncode == 1, done.stdout + done.stderr
    found = cells(root)
    assert found["passes"]["outcome"] == "pass"
    assert len(found["passes"]["attempts"]) == 1
    assert found["vacuous"]["outcome"] == "vacuous"
    flaky = found["differs-by-launch"]
    assert flaky["outcome"] == "unstable"
    assert [(a["launch"], a["outcome"]) for a in flaky["attempts"]] == [
        ("preloaded", "other-failure"),
        ("torchrun", "pass"),
    ]
    assert "2 cells deviate from their advisory: each runs again alone" in done.stdout


def test_options_that_the_shell_gives_every_pytest_do_not_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-v --no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    done = run(make_project(tmp_path, ["passes"]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_repeat_says_how_often_each_outcome_came(tmp_path: Path) -> None:
    root = make_project(tmp_path, ["is_flaky", "passes"])
    done = run(root, "--repeat", "3")
    assert done.returncode == 1, done.stdout + done.stderr
    found = cells(root)
    assert found["is-flaky"]["outcome"] == "unstable"
    assert "2 × other-failure" in found["is-flaky"]["reason"]
    assert [a["outcome"] for a in found["passes"]["attempts"]] == ["pass"] * 3
    assert "1 of 2 gave the same outcome every time" in done.stdout


def test_a_run_in_which_nothing_was_asserted_is_not_green(tmp_path: Path) -> None:
    assert run(make_project(tmp_path, ["vacuous"])).returncode == 1


def test_a_run_in_which_everything_was_skipped_is_not_green(tmp_path: Path) -> None:
    root = make_project(tmp_path, ["is_not_applicable"])
    advisory = root / "advisories" / "is-not-applicable.yaml"
    expected = {**yaml.safe_load(advisory.read_text()), "available": {"trl": "<1"}}
    advisory.write_text(yaml.safe_dump(expected))
    done = run(root)
    assert cells(root)["is-not-applicable"]["agrees"]
    assert done.returncode == 1, done.stdout


def test_a_package_that_will_not_build_is_unresolvable(tmp_path: Path) -> None:
    source = tmp_path / "peft-99.0"
    source.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: peft\nVersion: 99.0\n")
    (source / "setup.py").write_text("raise SystemExit('this release needs a compiler of 1987')\n")
    links = tmp_path / "links"
    links.mkdir()
    with tarfile.open(links / "peft-99.0.tar.gz", "w:gz") as archive:
        archive.add(source, arcname=source.name)
    root = make_project(tmp_path / "project", ["passes"], {**STACK, "peft": "99.0"})
    before = set(psutil.Process().children(recursive=True))
    done = run(root, UV_FIND_LINKS=str(links), TRL_COMPAT_CACHE=str(tmp_path / "cache"))
    cell = cells(root)["passes"]
    assert cell["outcome"] == "unresolvable", cell["reason"]
    assert "peft" in cell["reason"]
    assert "1987" in cell["reason"]
    assert done.returncode == 1
    assert set(psutil.Process().children(recursive=True)) == before


def _hear_interrupts() -> None:
    # Whoever runs these tests in the background has a shell that makes them deaf to SIGINT.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that hangs with grandchildren in sessions of their own, met at that moment."""
    root = make_project(tmp_path, ["hangs_with_a_grandchild"])
    running = subprocess.Popen(
        command(root),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )
    there = wait_for(lambda: len(list(tmp_path.glob("trl-compat-*/work/*/there-*"))) == 6, 120)
    assert there, "the ranks never came up"
    yield running
    running.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_whatever_ends_the_harness_nothing_of_a_cell_lives_on(
    hanging: subprocess.Popen[str], tmp_path: Path, how: signal.Signals
) -> None:
    own = psutil.Process(hanging.pid).children(recursive=True)
    assert len(own) >= 8  # the parent with the imports, the launcher, two ranks, four others
    assert any(process.cmdline() == ["sleep", "3600"] for process in own)
    hanging.send_signal(how)
    assert hanging.wait(60) == (-how if how is signal.SIGKILL else EXIT_INTERRUPTED)
    gone = wait_for(lambda: not any(_living(process) for process in own), 15)
    assert gone, [process.cmdline() for process in own if _living(process)]
    assert wait_for(lambda: not list(tmp_path.glob("trl-compat-*")), 15)


def _living(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_two_runs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    fakes = ["passes", "raises_on_rank_1", "leaves_a_child"]
    root = make_project(tmp_path, fakes)
    started = [
        subprocess.Popen(command(root, "--failure", *chosen), stdout=subprocess.PIPE, text=True)
        for chosen in (["passes", "--failure", "leaves-a-child"], ["raises-on-rank-1"])
    ]
    codes = [process.wait(180) for process in started]
    assert codes == [0, 1], [process.communicate() for process in started]
    assert {name: cell["outcome"] for name, cell in cells(root).items()} == {
        "passes": "pass",
        "leaves-a-child": "pass",
        "raises-on-rank-1": "other-failure",
    }
