"""Whether anything in an environment changed is seen, and what is not the cells' doing is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness import small_stack
from trl_compat.checking.examining import examine
from trl_compat.errors import BadInput, HarnessError
from trl_compat.stacks import matrix, providing
from trl_compat.stacks.environments import interpreters, locks
from trl_compat.stacks.environments.damage import Depth
from trl_compat.stacks.in_place import environment, listing
from trl_compat.stacks.in_place.environment import EnvironmentInPlace
from trl_compat.stacks.matrix import Stack


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    small_stack.make(tmp_path / "venv")
    return tmp_path / "venv"


@pytest.fixture
def stack(venv: Path) -> Stack:
    return examine(venv / "bin" / "python", venv.parent / "state").stack


def place_of(stack: Stack) -> EnvironmentInPlace:
    assert stack.in_place is not None
    return EnvironmentInPlace(stack.in_place)


def test_an_environment_as_it_was_is_sound(stack: Stack) -> None:
    for depth in Depth:
        assert place_of(stack).wrong(depth) == ""
    assert environment.changes(place_of(stack).record, contents=True) == []
    assert providing.ensure("any", stack).python.name == "python"


def test_an_edit_of_the_same_size_is_seen_by_its_content(stack: Stack, venv: Path) -> None:
    path = small_stack.site(venv) / "trl" / "more.py"
    before = path.stat()
    path.write_text("what = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place_of(stack).wrong(Depth.VERSIONS) == ""
    assert "trl/more.py was changed" in place_of(stack).wrong(Depth.CONTENTS)


@pytest.mark.parametrize("depth", [Depth.SIZES, Depth.CONTENTS])
def test_a_file_that_is_only_touched_has_not_changed(
    stack: Stack, venv: Path, depth: Depth
) -> None:
    os.utime(small_stack.site(venv) / "trl" / "more.py")
    assert place_of(stack).wrong(depth) == ""


@pytest.mark.parametrize("what", ["added", "removed"])
def test_what_is_installed_or_removed_is_seen_after_every_cell(
    stack: Stack, venv: Path, what: str
) -> None:
    if what == "added":
        small_stack.add(venv, "six", "1.17.0", {"six.py": ""})
    else:
        small_stack.remove(venv, "peft")
    for depth in Depth:
        assert f"was {what}" in place_of(stack).wrong(depth)
    with pytest.raises(HarnessError, match="changed during the run"):
        providing.ensure("any", stack)


@pytest.mark.parametrize("where", ["bin/tool", "pyvenv.cfg"])
def test_programs_and_settings_belong_to_it(stack: Stack, venv: Path, where: str) -> None:
    with (venv / where).open("a") as file:
        file.write("more\n")
    assert where in place_of(stack).wrong(Depth.CONTENTS)


def test_other_rights_are_a_change(stack: Stack, venv: Path) -> None:
    (small_stack.site(venv) / "trl" / "more.py").chmod(0o600)
    assert "was changed" in place_of(stack).wrong(Depth.SIZES)


def test_a_large_file_is_compared_by_size_and_time(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LARGEST_HASHED", 4)
    path = small_stack.site(venv) / "torch" / "more.py"
    stack = examine(venv / "bin" / "python", venv.parent / "state").stack
    assert place_of(stack).wrong(Depth.CONTENTS) == ""
    os.utime(path, ns=(1, 1))
    assert "torch/more.py was changed" in place_of(stack).wrong(Depth.CONTENTS)


def test_bytecode_of_another_program_is_told_and_blamed_on_nobody(stack: Stack, venv: Path) -> None:
    compiled = small_stack.site(venv) / "trl" / "__pycache__"
    compiled.mkdir()
    (compiled / "more.cpython-311.pyc").write_bytes(b"")
    for depth in Depth:
        assert place_of(stack).wrong(depth) == ""
    (change,) = environment.changes(place_of(stack).record, contents=True)
    assert "more.cpython-311.pyc was added" in change


def test_bytecode_of_the_release_is_not_used_for_a_file_that_was_edited(venv: Path) -> None:
    place = small_stack.site(venv)
    (place / "trl" / "more.py").write_text("what = 2\n")
    found = place_of(examine(venv / "bin" / "python", venv.parent / "state").stack)
    rows = (place / "trl-1.16.0.dist-info" / "RECORD").read_text().splitlines()
    hashes = {row.split(",")[0]: row.split(",")[1] for row in rows if row.split(",")[1]}
    assert {"trl/__init__.py", "trl/more.py"} <= set(hashes)
    genuine = found.genuine(place, hashes)
    assert "trl/__init__.py" in genuine
    assert "trl/more.py" not in genuine


def test_no_matrix_file_names_an_environment_in_place(stack: Stack, tmp_path: Path) -> None:
    table = {
        "models": [],
        "stacks": {"mine": stack.model_dump(mode="json", by_alias=True)},
        "profiles": {},
    }
    path = tmp_path / "matrix.yaml"
    path.write_text(str(table).replace("None", "null"))  # which is YAML
    with pytest.raises(BadInput, match=r"stacks\.mine: unknown key 'in_place'"):
        matrix.load(path)


def test_the_locks_of_other_stacks_keep_their_names(stack: Stack) -> None:
    apart = stack.model_copy(update={"in_place": None, "grid": ""})
    own = interpreters.own()
    assert locks._path(stack, own) == locks._path(apart, own)
