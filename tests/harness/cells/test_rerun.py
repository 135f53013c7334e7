"""The line beside a cell runs that cell again, however the run was started."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.conftest import ROOT
from tests.harness.fake_project import CLI, make_project
from tests.harness.written import cells_in
from trl_compat import results
from trl_compat.cells import rerun
from trl_compat.cells.plan import Selection
from trl_compat.cells.rerun import Again
from trl_compat.files import project
from trl_compat.gate.sides import THIS_PYTHON
from trl_compat.running import matrix_run
from trl_compat.running.execution.watch import Limits
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import interpreters, locks
from trl_compat.stacks.matrix import Matrix


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, with a program in it; the current folder is elsewhere."""
    folder = tmp_path / "home" / "a user"
    for name in ("trl-compat", "nox"):
        program = folder / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv(rerun.STARTED_BY, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_a_program_is_called_by_its_name_where_a_shell_finds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = home / ".venv" / "bin" / "trl-compat"
    monkeypatch.setattr(sys, "argv", [str(mine), "matrix"])
    assert rerun.start("matrix", Path()) == "~/.venv/bin/trl-compat matrix"
    monkeypatch.setenv("PATH", f"{mine.parent}:/usr/bin")
    assert rerun.start("matrix", Path()) == "trl-compat matrix"
    other = home / "other" / "trl-compat"
    other.parent.mkdir()
    shutil.copy(mine, other)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin")
    assert rerun.start("matrix", Path()) == "~/.venv/bin/trl-compat matrix"
    monkeypatch.chdir(home)
    assert rerun.start("matrix", Path()) == ".venv/bin/trl-compat matrix"


def test_who_called_nox_is_given_nox(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = home / "a checkout"
    checkout.mkdir()
    monkeypatch.chdir(checkout)  # as nox does before it reads its file
    nox = str(home / ".venv" / "bin" / "nox")
    assert rerun.nox_words(nox, str(checkout)) == "~/.venv/bin/nox"
    assert rerun.nox_words(nox, str(home)) == ".venv/bin/nox -f 'a checkout/noxfile.py'"
    assert rerun.nox_words("../.venv/bin/nox", str(checkout)) == "~/.venv/bin/nox"
    main = str(home / "site-packages" / "nox" / "__main__.py")
    assert rerun.nox_words(main, str(checkout)).endswith(" -m nox")
    monkeypatch.setenv("PATH", str(home / ".venv" / "bin"))
    called = rerun.nox_words(nox, str(checkout))
    assert called == "nox"
    given = {rerun.STARTED_BY: called}
    monkeypatch.setattr(sys, "argv", ["x", "matrix", "--stack", "a b"])
    assert rerun.start("matrix", Path(), given) == "nox -s matrix --"
    assert rerun.this_command(given) == "nox -s matrix -- --stack 'a b'"


def test_a_home_folder_is_not_named_and_still_found(home: Path) -> None:
    for text, told in (
        (str(home / "m.yaml"), "~/m.yaml"),
        (str(home / "my files" / "m.yaml"), "~/'my files/m.yaml'"),
        (f"--matrix={home}/m.yaml", "--matrix ~/m.yaml"),
        ("/data/m x.yaml", "'/data/m x.yaml'"),
        ("$(touch x)", "'$(touch x)'"),
        (str(home), "~"),
    ):
        assert rerun.word(text) == told
    said = subprocess.run(
        ["sh", "-c", f"printf %s {rerun.word(str(home / 'my files' / 'm.yaml'))}"],
        env={"HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == str(home / "my files" / "m.yaml")


def test_a_path_is_told_from_where_the_user_stands(home: Path) -> None:
    assert rerun.shown(Path("x y/m.yaml")) == "'x y/m.yaml'"
    assert rerun.shown(Path.cwd() / "m.yaml") == "m.yaml"
    assert rerun.shown(Path("../m.yaml")) == shlex.quote(str(home.parents[1] / "m.yaml"))
    assert rerun.shown(Path("-m.yaml")) == "./-m.yaml"


@pytest.mark.parametrize(
    "line",
    [
        "trl-compat matrix --matrix /data/trl-compat-main/m.yaml --reports /tmp/a/b",
        "trl-compat matrix --matrix /data/tests/reproductions/m.yaml",
        "trl-compat --project /srv/root/environments/x matrix --matrix data/home/x/m.yaml",
    ],
)
def test_what_is_written_can_still_be_pasted(line: str) -> None:
    assert results.scrub_command(line) == line


def test_what_is_private_is_not_written_into_a_line() -> None:
    line = "trl-compat matrix --matrix /home/alice/m.yaml --reports '/Users/bob/x' hf_abcdefghijk"
    assert results.scrub_command(line) == (
        "trl-compat matrix --matrix ~/m.yaml --reports '~/x' <token>"
    )


def test_only_what_is_not_as_usual_is_named(project_folder: Path, tmp_path: Path) -> None:
    table = matrix.load(project_folder / "matrix.yaml")
    others = dict.fromkeys(("mine", "full"), table.profiles["default"])
    without_default = table.model_copy(update={"profiles": others})

    def more(where: project.Project, table: Matrix = table, **options: Any) -> str:
        given = matrix_run.Options(jobs=1, **options)
        return matrix_run._again(where, table, Selection(profile="full"), given).line([])

    usual = project.at(project_folder)
    plain = Again().line([])
    assert more(usual) == plain
    assert more(usual, without_default) == f"{plain} --profile full"
    assert more(usual, preload=False) == f"{plain} --torchrun"
    assert more(usual, limits=Limits(seconds=20, idle=4.5)) == (
        f"{plain} --timeout 20 --idle-timeout 4.5"
    )
    other = project.at(project_folder, matrix=tmp_path / "m.yaml", reports=tmp_path / "r r")
    assert more(other) == f"{plain} --matrix {tmp_path}/m.yaml --reports '{tmp_path}/r r'"


# --- each kind of source, its line really run -----------------------------------------------------

AGAIN = re.compile(r"^\s*again: (.+)$", re.M)
WITH_CONTROL = {
    "module": "vacuous",
    "control": "control",
    "variants": {"control": {}, "one": {}, "another": {}},
}


ONE_SURPRISES = """
def scenario(rank):
    if rank.spec.variant != "one":
        rank.check("holds", True, "")
"""


class Source:
    """A project of two failures with two variants and a control each; one cell asserts nothing."""

    def __init__(self, root: Path) -> None:
        make_project(root, ["vacuous", "passes"])
        for name in ("vacuous", "passes"):
            path = root / "advisories" / f"{name}.yaml"
            reproduction = {**WITH_CONTROL, "module": name}
            record = {**yaml.safe_load(path.read_text()), "reproduction": reproduction}
            path.write_text(yaml.safe_dump(record))
        (root / "tests" / "reproductions" / "vacuous.py").write_text(ONE_SURPRISES)
        self.root, self.state, self.reports = root, root / ".trl-compat", root / "reports"

    def observed(self) -> dict[str, str]:
        """Of each cell the run that it was observed in."""
        found = {}
        for path in self.root.parent.rglob("cells/*.json"):
            record = json.loads(path.read_bytes())
            found[record["cell_id"]] = record["run"]
        return found

    def check(self, first: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
        """Starts a run, runs the line of one of its cells, and gives the line.

        That cell and its control are run again, nothing else is, and the reports are those of
        before with these two in them.
        """
        given = {**os.environ, **(env or {})}
        done = subprocess.run(
            first, cwd=cwd, env=given, capture_output=True, text=True, check=False
        )
        printed = AGAIN.findall(done.stdout + done.stderr)
        assert printed, done.stdout + done.stderr
        name, line = next(
            (name, str(cell["command"]))
            for name, cell in self.cells().items()
            if cell["failure"] == "vacuous" and cell["variant"] == "one"
        )
        assert line in printed, "the terminal says another line than the report"
        before, reported = self.observed(), self.cells()
        again = subprocess.run(
            ["bash", "-c", line], cwd=cwd, env=given, capture_output=True, text=True, check=False
        )
        assert again.returncode == 1, line + again.stdout + again.stderr  # vacuous as before
        after = self.observed()
        changed = {cell for cell in after if after[cell] != before.get(cell)}
        assert changed == {name, name.replace("__one__", "__control__")}, line
        now = self.cells()
        assert set(now) == set(reported)
        assert {c for c in now if now[c]["run"] != reported[c]["run"]} == changed
        assert now[name]["command"] == line
        return line

    def cells(self) -> dict[str, dict[str, Any]]:
        if not self.reports.is_dir():  # a gate's folder has the digest of a lock in its name
            (self.reports,) = self.reports.parent.glob(f"{self.reports.name}*")
        return cells_in(self.reports)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "a checkout")


BARE = {"PATH": "/usr/bin:/bin"}  # neither trl-compat nor nox is found


@pytest.mark.matrix
def test_a_run_in_the_checkout(source: Source) -> None:
    line = source.check([str(CLI), "matrix"], source.root)
    assert "--project" not in line


@pytest.mark.matrix
def test_a_run_from_elsewhere_without_nox(source: Source) -> None:
    words = [str(CLI), "--project", "a checkout", "matrix", "--device", "cpu"]
    line = source.check(words, source.root.parent, BARE)
    assert line.startswith(f"{rerun.word(str(CLI))} --project 'a checkout' matrix --stack ")


@pytest.mark.matrix
def test_a_run_of_another_matrix_and_profile_by_torchrun(source: Source) -> None:
    other = source.root / "my own.yaml"
    text = (source.root / "matrix.yaml").read_text().replace("default:", "mine:")
    other.write_text(text.replace("fake-stack", "my-stack"))
    words = [str(CLI), "matrix", "--matrix", "my own.yaml", "--profile", "mine", "--torchrun"]
    line = source.check([*words, "--failure", "vacuous"], source.root)
    assert line.endswith("--profile mine --matrix 'my own.yaml' --torchrun")


@pytest.mark.matrix
def test_a_run_with_reports_of_its_own_at_another_world_size(source: Source) -> None:
    source.reports = source.root.parent / "my reports"
    words = [str(CLI), "matrix", "--reports", "../my reports", "--world-size", "3"]
    line = source.check([*words, "--failure", "vacuous"], source.root)
    assert " --world-size 3 " in line
    assert line.endswith(f"--reports '{source.reports}'")
    assert not (source.root / "reports").exists()


@pytest.mark.matrix
@pytest.mark.skipif(THIS_PYTHON != "3.11", reason="a lock is installed for this Python")
def test_a_gate_with_a_file(source: Source) -> None:
    stack = matrix.load(ROOT / "matrix.yaml").stacks["trl-1.12.0"]
    lock = locks.resolve(stack, interpreters.find(stack.python))
    (source.root / "requirements.txt").write_text(lock.text, encoding="utf-8")
    words = [str(CLI), "gate", "--from", "fake-stack", "--to", "requirements.txt"]
    source.reports = source.state / "gate" / "fake-stack--lock"
    line = source.check([*words, "--device", "cpu"], source.root)
    folder = f".trl-compat/gate/{source.reports.name}"
    assert line.endswith(f"--profile gate --matrix {folder}/matrix.yaml --reports {folder}")
    assert not (source.root / "reports").exists()


@pytest.mark.matrix
def test_a_run_by_nox(source: Source) -> None:
    for name in ("noxfile.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source.root)
    shutil.copytree(ROOT / "src", source.root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (source.root / "invariants").mkdir()  # the wheel takes it along
    nox = Path(sys.executable).with_name("nox")
    words = [str(nox), "-f", "a checkout/noxfile.py", "-s", "matrix", "--", "--device", "cpu"]
    line = source.check(words, source.root.parent, BARE)
    called = rerun.word(str(nox))
    assert line.startswith(f"{called} -f 'a checkout/noxfile.py' -s matrix -- --stack fake-stack ")
