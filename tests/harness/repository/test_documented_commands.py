"""Every command shown in README, CONTRIBUTING and docs/ works as it stands.

*Executed*, in a copy of the project: every ``trl-compat`` command but ``matrix``, ``gate``,
``plan``, ``bench``, ``bisect`` and ``refresh``, which build environments or ask the index,
``check`` and ``nodes``, which want an environment, ``merge``, which wants results of several
machines, and ``advisories new`` and ``finish``, which begin a record and run its cells (what they
do is executed by tests of their own).

``doctor`` finds something in the files of a user that stand there, which is its exit code 1; it
says of this environment that it has no TRL.

*Parsed* by the real click command that they reach, the cells of ``matrix`` planned, but not
executed: those, and the sessions of nox ``matrix``, ``gate``, ``bench``, ``bisect`` and ``stack``;
of the other sessions of nox it is checked that there are such sessions.  The two one-line commands
of the README are what CI runs, see ``test_documents``.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from tests.harness import lock_texts
from tests.harness.conftest import ROOT
from tests.harness.pages import PAGES
from trl_compat import advisories
from trl_compat.cells.plan import Selection, plan
from trl_compat.cli import cli
from trl_compat.stacks import matrix
from trl_compat.stacks.stack_names import stack_names

TABLE = matrix.load(ROOT / "matrix.yaml")
CATALOGUE = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


def shown(page: str) -> list[str]:
    """The command lines of the fenced ``sh`` blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


COMMANDS = [
    pytest.param(shlex.split(line, comments=True), id=f"{page}: {line.split('#')[0].strip()}")
    for page in PAGES
    for line in shown(page)
    if not line.startswith("python3 -m venv")
]


PINS = {"trl": "0.12.2", "transformers": "4.46.3", "accelerate": "0.34.2", "deepspeed": "0.15.2"}
FILES_OF_A_USER = {
    "requirements.txt": lock_texts.requirements(PINS),
    "uv.lock": lock_texts.uv_lock(PINS),
    "train.py": "from trl import PPOTrainer\ntrainer = PPOTrainer()\n",
    "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\n",
    "zero3.json": '{"zero_optimization": {"stage": 3}}',
}


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("advisories", "invariants", "tests/reproductions", "tiny_models"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "reports").mkdir()
    for name in ("matrix.yaml", "reports/results.json"):
        shutil.copy(ROOT / name, folder / name)
    if (ROOT / "reports" / "results").is_dir():
        shutil.copytree(ROOT / "reports" / "results", folder / "reports" / "results")
    for name, text in FILES_OF_A_USER.items():
        (folder / name).write_text(text)
    subprocess.run(["trl-compat", "report"], cwd=folder, check=True, env=with_ours())
    return folder


def with_ours() -> dict[str, str]:
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}


def parsed(command: str, words: list[str]) -> click.Context:
    found: click.Command = cli.commands[command]
    if isinstance(found, click.Group):
        found, words = found.commands[words[0]], words[1:]
    return found.make_context(command, list(words), parent=click.Context(cli, obj=ROOT))


def plan_cells(words: list[str]) -> None:
    """The cells of ``trl-compat matrix`` with these options; there must be some."""
    given = parsed("matrix", words).params
    fields = ("profile", "stacks", "failures", "variants", "models", "fixes", "world_size")
    selection = Selection.model_validate({name: given[name] for name in fields})
    assert plan(TABLE, CATALOGUE, selection).cells


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_works(words: list[str], copy: Path) -> None:
    match words:
        case ["trl-compat", "matrix", *rest]:
            plan_cells(rest)
        case [
            "trl-compat",
            "gate" | "plan" | "bench" | "bisect" | "refresh" | "check" | "merge" | "nodes" as name,
            *rest,
        ]:
            parsed(name, rest)
        case ["trl-compat", "advisories", "new" | "finish", *_]:
            parsed("advisories", words[2:])
        case ["trl-compat", "doctor", *files]:
            done = subprocess.run(
                words, cwd=copy, env=with_ours(), capture_output=True, text=True, check=False
            )
            assert done.returncode == (1 if files else 2), done.stderr
            assert ("ppo-zero3-save" in done.stdout) if files else ("no TRL in it" in done.stderr)
        case ["trl-compat", *_]:
            done = subprocess.run(
                words, cwd=copy, env=with_ours(), capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout or "--output" in words
        case ["nox", "-s", "matrix", *rest]:
            plan_cells(rest[1:])
        case ["nox", "-s", name] if found := re.fullmatch(r"stack\((.+)\)", name):
            assert found[1] in stack_names(ROOT / "matrix.yaml")
        case ["nox", "-s", "gate" | "bench" | "bisect" as name, *rest]:
            assert name in sessions()
            parsed(name, rest[1:])
        case ["nox", "-s", *rest]:
            names = rest[: rest.index("--")] if "--" in rest else rest
            assert set(names) <= sessions()
        case _:
            pytest.fail("nobody knows how to test this; teach the test or leave the command out")


def test_there_are_commands_to_test() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nox", "-s", "matrix", "--", "--stack", "trl-9.9"], Exception),
        (["nox", "-s", "matrix", "--", "--colour"], click.UsageError),
        (["nox", "-s", "nothing"], AssertionError),
        (["trl-compat", "explain", "nothing"], AssertionError),
        (["rm", "-r", "x"], pytest.fail.Exception),
    ],
)
def test_a_command_that_does_not_work_is_noticed(
    words: list[str], error: type[BaseException], copy: Path
) -> None:
    with pytest.raises(error):
        test_the_command_works(words, copy)


def test_the_gate_of_the_readme_is_a_workflow_of_ten_lines_or_so() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S) if "gate" in b]
    assert len(block.splitlines()) <= 12
    command = yaml.safe_load(block)["jobs"]["gate"]["steps"][-1]["run"]
    options = command.partition(" -- ")[2]
    assert "gate" in sessions()
    parsed("gate", shlex.split(options))
