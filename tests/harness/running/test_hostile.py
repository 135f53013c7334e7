"""Names and texts of matrix.yaml and advisories get into no path, no shell and no lock."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.harness.observations import observed, record
from trl_compat import advisories
from trl_compat.cells import rerun
from trl_compat.cells.plan import Selection, plan
from trl_compat.cells.rerun import Again
from trl_compat.errors import BadInput
from trl_compat.results import scrub
from trl_compat.running.store import CellRecord, Store
from trl_compat.stacks import matrix

HOSTILE = (
    "../../escape",
    "/etc/passwd",
    "a b",
    "$(touch x)",
    "`touch x`",
    "a;touch x",
    "--index-url=https://example.org",
    "<script>alert(1)</script>",
    "a\\nb",
    "A\u202e",
)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    ("file", "old"),
    [
        ("matrix.yaml", "  old:"),
        ("matrix.yaml", "models: [tiny-mistral,"),
        ("matrix.yaml", "trl: 0.11.4,"),
        ("matrix.yaml", "as_of: 2024-10-20, torch"),
        ("matrix.yaml", 'huggingface/trl@724acb971"'),
        ("advisories/saving.yaml", "id: saving"),
        ("advisories/saving.yaml", "zero2: {zero_stage: 2}"),
        ("advisories/saving.yaml", "module: saving"),
        ("advisories/saving.yaml", "name: right"),
        ("advisories/saving.yaml", "trl_compat.fixes.ppo_zero3_save:apply"),
        ("advisories/saving.yaml", "https://github.com/huggingface/trl/issues/2122"),
    ],
)
def test_a_hostile_name_is_refused(project_folder: Path, file: str, old: str, hostile: str) -> None:
    path = project_folder / file
    quoted = '"' + hostile + '"'
    new = {
        "  old:": f"  {quoted}:",
        "models: [tiny-mistral,": f"models: [{quoted},",
        "trl: 0.11.4,": f"trl: {quoted},",
        "as_of: 2024-10-20, torch": f"as_of: 2024-10-20, with: [{quoted}], torch",
        'huggingface/trl@724acb971"': f'huggingface/{hostile}@724acb971"',
        "id: saving": f"id: {quoted}",
        "zero2: {zero_stage: 2}": f"{quoted}: {{zero_stage: 2}}",
        "module: saving": f"module: {quoted}",
        "name: right": f"name: {quoted}",
        "trl_compat.fixes.ppo_zero3_save:apply": hostile,
        "https://github.com/huggingface/trl/issues/2122": f"javascript:{hostile}",
    }[old]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput):
        load(project_folder)


def load(folder: Path) -> tuple[matrix.Matrix, advisories.Catalogue]:
    table = matrix.load(folder / "matrix.yaml")
    return table, advisories.load(folder / "advisories", folder / "tests" / "reproductions")


def test_every_command_of_a_plan_is_one_shell_word_per_argument(project_folder: Path) -> None:
    planned = plan(*load(project_folder), Selection())
    for cell in planned.cells:
        words = shlex.split(
            cell.command(Again(more=f"--matrix {rerun.shown(Path('a folder/$(x).yaml'))}"))
        )
        assert words[-1] == "a folder/$(x).yaml"
        assert set(cell.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_")


def test_a_record_that_is_no_record_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    seen = CellRecord(key="k", cell_id="c", surroundings=None, observations=(observed(record()),))
    store.write(seen)
    assert store.read("c") == seen
    (tmp_path / "cells" / "c.json").write_bytes(b'{"key": "k", \x00\xff')
    assert store.read("c") is None


def test_what_a_rank_says_cannot_smuggle_out_a_secret() -> None:
    said = "token hf_abcdefghijklmnop at /home/somebody/.cache and /tmp/trl-compat-x1/secret"
    assert scrub(said) == "token <token> at ~/.cache and <cell>/secret"
