"""Bytecode is compiled once for all stacks with a wheel, and only from the wheel's own sources."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness import made_environment as made
from trl_compat.errors import HarnessError
from trl_compat.stacks.environments import bytecode
from trl_compat.stacks.environments.build import Environment
from trl_compat.stacks.environments.damage import Made

FAILS = "def fail():\n    raise LookupError('here')\n"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bytecode"


def environment(folder: Path, **more: tuple[str, dict[str, str]]) -> Environment:
    """An environment with two small packages, and more: version and files by name."""
    made.make(folder)
    for name, (version, files) in more.items():
        made.add(folder, name, version, files)
    python = folder / "bin" / "python"
    return Environment(python, made.LOCK, folder / "pycache", Made(frozenset()), "")


def sources(environment: Environment, *paths: str) -> list[str]:
    return [str(made.site(environment.folder) / path) for path in paths]


def kept(store: Path) -> set[str]:
    """What is in the store of packages, by package and path."""
    found = (path.relative_to(store).parts[1:] for path in store.rglob("*.pyc"))
    return {f"{p[0].rpartition('-')[0]}/{'/'.join(p[1:])}" for p in found}


def cached(environment: Environment, path: str) -> Path:
    """Where the stack's interpreter looks for the bytecode of a module."""
    name = bytecode._python(str(environment.python)).tag
    source = made.site(environment.folder) / path
    return Path(f"{environment.bytecode}{source.with_suffix('')}.{name}.pyc")


def python(environment: Environment, code: str) -> str:
    done = subprocess.run(
        [str(environment.python), "-c", code],
        env={
            "PYTHONPYCACHEPREFIX": str(environment.bytecode),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_two_stacks_with_a_wheel_share_what_was_compiled_once(tmp_path: Path) -> None:
    first = environment(tmp_path / "first", own=("1", {"own.py": FAILS}))
    second = environment(tmp_path / "second", own=("1", {"own.py": FAILS}))
    bytecode.prepare(first)
    assert bytecode.add(first, sources(first, "trl/trainer.py", "own.py")) == 2
    bytecode.prepare(second)  # nobody has imported anything there yet
    for path in ("trl/trainer.py", "own.py"):
        assert cached(second, path).samefile(cached(first, path))
    assert not cached(second, "six.py").exists()
    said = python(second, "import own; print(own.__cached__); own.fail()")
    assert said.startswith(str(cached(second, "own.py")))
    assert f'File "{tmp_path}/second/' in said  # though it was compiled in the first one
    assert "/first/" not in said


def test_the_interpreter_takes_what_was_compiled(tmp_path: Path) -> None:
    stack = environment(tmp_path / "stack", own=("1", {"own.py": "print('compiled')\n"}))
    bytecode.prepare(stack)
    bytecode.add(stack, sources(stack, "own.py"))
    path = made.site(stack.folder) / "own.py"
    path.write_text("print('from source')\n")
    assert python(stack, "import own") == "compiled\n"


def test_a_new_release_is_compiled_as_far_as_another_one_was_imported(
    tmp_path: Path, store: Path
) -> None:
    files = {"deep/__init__.py": "", "deep/used.py": "x = 1\n", "deep/unused.py": "y = 1\n"}
    old = environment(tmp_path / "old", deep=("0.1", files))
    new = environment(tmp_path / "new", deep=("0.2", {**files, "deep/used.py": "x = 2\n"}))
    bytecode.prepare(old)
    bytecode.add(old, sources(old, "deep/used.py"))
    bytecode.prepare(new)
    assert kept(store) == {"deep-0.1/deep/used.pyc", "deep-0.2/deep/used.pyc"}
    assert python(new, "import deep.used; print(deep.used.x)") == "2\n"


def test_what_a_stack_says_selects_sources_of_its_packages_and_nothing_else(
    tmp_path: Path, store: Path
) -> None:
    stack = environment(tmp_path / "stack")
    stray = made.site(stack.folder) / "stray.py"
    outside = tmp_path / "outside.py"
    for path in (stray, outside):
        path.write_text("x = 1\n")
    bytecode.prepare(stack)
    said = [
        *sources(stack, "stray.py", "trl/../six.py", "trl-1.12.0.dist-info/METADATA", "no.py"),
        *(str(outside), "/etc/passwd", "six.py", "", None, 7, ["six.py"]),
    ]
    assert bytecode.add(stack, said) == 0
    assert kept(store) == set()


def test_a_changed_source_is_not_compiled_for_others(tmp_path: Path, store: Path) -> None:
    stack = environment(tmp_path / "stack")
    bytecode.prepare(stack)
    made.replace(made.site(stack.folder) / "six.py", "moves = 2\n")
    assert bytecode.add(stack, sources(stack, "six.py", "trl/trainer.py")) == 1
    assert kept(store) == {"trl-1.12.0/trl/trainer.pyc"}


def test_nothing_of_a_stack_runs_while_it_is_compiled(tmp_path: Path, store: Path) -> None:
    trace = tmp_path / "trace"
    runs = f"open({str(trace)!r}, 'w')\n"
    stack = environment(tmp_path / "stack", evil=("1", {"evil.py": runs}))
    site = made.site(stack.folder)
    for name, text in (
        ("sitecustomize.py", runs),
        ("hashlib.py", runs),
        ("evil.pth", f"import sys; {runs}"),
    ):
        (site / name).write_text(text)
    bytecode.prepare(stack)
    assert bytecode.add(stack, sources(stack, "evil.py")) == 1
    assert kept(store) == {"evil-1/evil.pyc"}
    assert not trace.exists()


def test_the_standard_library_is_compiled_too(tmp_path: Path) -> None:
    stack = environment(tmp_path / "stack")
    library = bytecode._python(str(stack.python)).library
    bytecode.prepare(stack)
    assert bytecode.add(stack, [f"{library}/colorsys.py"]) == 1
    said = python(stack, "import colorsys, os; print(os.path.exists(colorsys.__cached__))")
    assert said == "True\n"


def test_what_cannot_be_compiled_is_left_to_its_import(tmp_path: Path, store: Path) -> None:
    stack = environment(tmp_path / "stack", old=("1", {"old.py": "print 'text'\n"}))
    bytecode.prepare(stack)
    assert bytecode.add(stack, sources(stack, "old.py")) == 0
    assert list(store.rglob("*old*.pyc*")) == []


def test_an_interpreter_that_does_not_start_is_said(tmp_path: Path) -> None:
    stack = environment(tmp_path / "stack")
    stack.python.unlink()
    stack.python.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    stack.python.chmod(0o755)
    with pytest.raises(HarnessError, match="cannot be started: broken"):
        bytecode.prepare(stack)
