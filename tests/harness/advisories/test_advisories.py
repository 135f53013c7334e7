"""Advisories are data that is checked; symptoms match by type, message and place together."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from tests.harness.observations import SEEN
from trl_compat import advisories
from trl_compat.advisories import Catalogue
from trl_compat.errors import BadInput


def test_the_symptom_is_found(catalogue: Catalogue) -> None:
    assert catalogue["saving"].symptom_of(SEEN) == "text"


@pytest.mark.parametrize(
    "change",
    [
        {"exception": "KeyError"},
        {"message": "'X' object has no attribute 'scatter'"},
        {"where": "deepspeed/engine.py:get_state_dict"},
        {"frames": SEEN["frames"][1:]},
    ],
)
def test_type_message_place_and_way_must_all_match(
    catalogue: Catalogue, change: dict[str, Any]
) -> None:
    assert catalogue["saving"].symptom_of({**SEEN, **change}) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("severity: crash-late", "severity: awful", "severity"),
        ('trl: "<1.13"', 'trl: "below 1.13"', "available|not a version range"),
        ("symptom: empty}", "symptom: full}", "symptom 'full' is not defined"),
        ("control: ddp", "control: ddq", "'ddq' is not one of the variants"),
        ('message: "tensors empty"', 'message: "(tensors"', "not a regular expression"),
        ("module: saving", "module: savings", "reproduction savings.py not found in"),
        ("id: saving", "id: saving-more", "must match the file name 'saving'"),
        ('{trl: ">=0.11', '{trll: ">=0.11', "unknown package 'trll'"),
    ],
)
def test_a_broken_record_is_named(project_folder: Path, old: str, new: str, said: str) -> None:
    path = project_folder / "advisories" / "saving.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput, match=said) as error:
        advisories.load(path.parent, project_folder / "tests" / "reproductions")
    assert "saving.yaml" in str(error.value)


def own() -> Catalogue:
    return advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")


def test_every_fix_of_ours_exists_and_imports_without_the_stack() -> None:
    for advisory in own().records.values():
        for fix in advisory.fixes:
            if fix.entry is None:
                assert fix.conditions, "a setting"
                assert fix.snippet
                continue
            module, _, function = fix.entry.partition(":")
            assert callable(getattr(importlib.import_module(module), function))
            assert compile(fix.snippet, fix.name, "exec")
            assert compile(fix.standalone, fix.name, "exec")


def test_every_wrong_fix_of_ours_can_be_called() -> None:
    for advisory in own().records.values():
        for wrong in advisory.wrong_fixes:
            assert wrong.entry is not None
            module, _, function = wrong.entry.partition(":")
            if module != "reproduction":  # right elsewhere, wrong under these conditions
                assert callable(getattr(importlib.import_module(module), function))
                continue
            assert advisory.reproduction is not None
            path = ROOT / "tests" / "reproductions" / f"{advisory.reproduction.module}.py"
            assert f"def {function}() -> str:" in path.read_text()
