"""What the documents say is what is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from tests.harness.pages import PAGES
from trl_compat.stacks import matrix
from trl_compat.stacks.stack_names import stack_names

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python3 -m venv .*$", README, re.M)


def test_ci_runs_the_two_commands_of_the_readme_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    ours = [line for line in lines if line and not line.startswith("#")]
    assert len(COMMANDS) == 2
    assert ours == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', *COMMANDS]


def test_noxs_stack_names_are_those_of_the_matrix() -> None:
    assert stack_names(ROOT / "matrix.yaml") == matrix.load(ROOT / "matrix.yaml").by_hand


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("path", sorted(ROOT.glob("src/**/*.py")), ids=lambda p: Path(p).stem)
def test_no_module_is_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
