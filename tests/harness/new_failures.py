"""A small checkout in which a failure is begun, and what somebody would write into its files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

FOLDERS = ("src/trl_compat/fixes", "src/trl_compat/shipped", "tests/harness/sabotages")
INVARIANT = """
id: adds-up
title: It adds up
statement: The sum is right.
reference: A sum by hand.
measured: {sum: what came out, kind: of what}
tolerance: {sum: 0.1}
tolerance_from: A lost summand is one.
reproduction: {module: saving, variants: {zero2: {zero_stage: 2}, zero3: {zero_stage: 3}}}
"""
# By the beginning of the sentence that asks for it.
ANSWERS = {
    "Choose crash": "crash-late",
    "Choose how far": "start",
    "Give the address": "https://github.com/huggingface/trl/issues/1",
    "Give the affected": ">=0.11.0,<=1.12.0",
    "Give a range": ">=1.13.0",
    "Give the conditions under": {"zero_stage": 1},
    "Name the fix": "mend-it",
    "Write the same fix": "import sys",
    "Write the setting": "zero_optimization",
}
PLACE = re.compile(r'(?P<quoted>")?(?:# )?TODO\W+(?P<sentence>[^"]*)(?(quoted)")')


@pytest.fixture
def checkout(project_folder: Path) -> Path:
    """A project with an invariant, and with the folders that a failure has files in."""
    (project_folder / "invariants").mkdir()
    (project_folder / "invariants" / "adds-up.yaml").write_text(INVARIANT)
    for folder in FOLDERS:
        (project_folder / folder).mkdir(parents=True)
    return project_folder


def snapshot(root: Path) -> dict[Path, bytes]:
    """Every file of a folder."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def filled_in(paths: Iterable[Path]) -> None:
    """Fills in every place of some files; comments that ask for something are removed."""
    for path in paths:
        lines = [_answered(line) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{line}\n" for line in lines if line is not None))


def _answered(line: str) -> str | None:
    asked = PLACE.search(line)
    if asked is None:
        return line
    start = (answer for begin, answer in ANSWERS.items() if asked["sentence"].startswith(begin))
    answer = next(start, None)
    if answer is None and line.lstrip().startswith("#"):
        return None
    answer = answer or "Text."
    written = json.dumps(answer) if asked["quoted"] else str(answer)
    return line[: asked.start()] + written + line[asked.end() :]
