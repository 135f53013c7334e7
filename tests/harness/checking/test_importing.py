"""A package that cannot be imported is told in a sentence before any cell runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import small_stack
from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.cells.rank_records import RaisedError
from trl_compat.checking.examining import examine
from trl_compat.checking.importing import Imports, imports, refuse_broken
from trl_compat.errors import BadInput
from trl_compat.stacks.in_place.record import InPlace


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    small_stack.make(tmp_path / "venv")
    return tmp_path / "venv"


def record_of(venv: Path) -> InPlace:
    return examine(venv / "bin" / "python", venv.parent / "state").record


def text_of(venv: Path, package: str, text: str) -> None:
    (small_stack.site(venv) / package / "__init__.py").write_text(text)


def refused(found: Imports) -> str:
    with pytest.raises(BadInput) as error:
        refuse_broken("--python python", found, (), {"trl": "1.16.0"})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_can_be_imported_is_accepted_and_nothing_is_written(venv: Path) -> None:
    text_of(venv, "torch", "class cuda:\n    device_count = staticmethod(lambda: 3)\n")
    record = record_of(venv)
    before = set(venv.rglob("*"))
    found = imports(record, ["torch", "trl"])
    assert (found.failed, found.gpus, found.ended) == ({}, 3, "")
    refuse_broken("--python python", found, (), {})
    assert set(venv.rglob("*")) == before


def test_what_prints_a_lot_is_understood_all_the_same(venv: Path) -> None:
    text_of(venv, "torch", "import atexit\nprint('{')\natexit.register(print, 'bye')\n")
    assert imports(record_of(venv), ["torch"]) == Imports({}, 0)


def test_an_import_error_is_refused_in_one_sentence(venv: Path) -> None:
    text_of(venv, "trl", "raise ImportError('libfoo.so.1: no such\\nlibrary')\n")
    found = imports(record_of(venv), ["torch", "trl"])
    told = "trl 1.16.0 cannot be imported there (ImportError: libfoo.so.1: no such library)"
    assert told in refused(found)


def test_an_interpreter_that_dies_of_an_import_is_refused(venv: Path) -> None:
    text_of(venv, "torch", "import os\nprint('last words', flush=True)\nos._exit(5)\n")
    assert "cannot be imported (exit status 5: last words)" in refused(
        imports(record_of(venv), ["torch"])
    )


def test_an_error_that_an_advisory_records_is_a_result() -> None:
    catalogue = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
    recorded = ROOT / "tests" / "harness" / "recorded_errors" / "peft-hybridcache-tf5.json"
    error = json.loads(recorded.read_text())[0]["error"]
    found = Imports({"peft": RaisedError.model_validate(error)})
    refuse_broken("--python python", found, catalogue.masks, {})
    with pytest.raises(BadInput):
        refuse_broken("--python python", found, (), {})
