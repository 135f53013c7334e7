"""Every stand-in that a cell can carry is in one list, with its reason, and on the pages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from markupsafe import escape

from tests.harness.conftest import ROOT
from tests.harness.made_results import cell, document
from trl_compat import results
from trl_compat.advisories import load as load_advisories
from trl_compat.report import html, markdown, page_data
from trl_compat.report import stand_ins as listed
from trl_compat.runtime import stand_ins

RUNTIME = Path(stand_ins.__file__).parent
SOURCES = [
    *RUNTIME.glob("*.py"),
    *(RUNTIME.parent / "fixes").rglob("*.py"),
    *(ROOT / "tests" / "reproductions").rglob("*.py"),
]


def used_in(path: Path) -> Iterator[str]:
    """The names that a source registers; where one is computed, what it is computed from."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Call(func=ast.Attribute(attr="use_stand_in"), args=[name]):
                yield str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name)


def test_what_is_used_is_listed_with_its_reason_and_what_is_listed_is_used() -> None:
    used = {name for path in SOURCES for name in used_in(path)}
    assert "vllm-recorder-1" in used
    automatic = {stand_in.name for stand_in in stand_ins.AUTOMATIC}
    assert used - {"stand_in.name"} == set(stand_ins.NAMED)  # the computed one: the automatic ones
    assert "stand_in.name" in used
    assert set(stand_ins.reasons()) == automatic | set(stand_ins.NAMED)
    assert all(reason.strip() for reason in stand_ins.reasons().values())


def test_what_the_committed_results_carry_is_listed() -> None:
    found = results.read(ROOT / "reports" / "results.json")
    assert found is not None
    carried = {name for one in found.cells for name in one.stand_ins}
    assert carried <= set(stand_ins.reasons())


def test_the_pages_list_what_the_cells_used_and_why() -> None:
    catalogue = load_advisories(ROOT / "advisories", ROOT / "tests" / "reproductions")
    shown = document(cell(stand_ins=["vllm-recorder-1", "of-a-later-version-1"]), cell(id="b"))
    reason = stand_ins.reasons()["vllm-recorder-1"]
    assert listed.used(shown) == [
        ("vllm-recorder-1", 1, reason),
        ("of-a-later-version-1", 1, listed.UNKNOWN),
    ]
    assert f"- `vllm-recorder-1` (1 cells): {reason}" in markdown.render(shown, catalogue)
    assert f"<code>vllm-recorder-1</code> (1 cells): {escape(reason)}" in html.render(
        shown, catalogue
    )
    assert page_data.embedded(shown, catalogue)["standIns"]["vllm-recorder-1"] == reason
