"""Whatever is done to an environment is found, and what is as it was made is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import made_environment
from tests.harness.made_environment import LOCK, replace, site
from trl_compat.stacks.environments import build, cache, damage, interpreters, locks
from trl_compat.stacks.environments.damage import Depth, Made
from trl_compat.stacks.matrix import Stack

INFO = "trl-1.12.0.dist-info"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_environment.make(tmp_path / "environment")
    return tmp_path / "environment"


def look(folder: Path, depth: Depth) -> str:
    made = damage.noted(folder)
    assert made is not None
    found = damage.find(folder, made, depth)
    return damage.sentence(found) if found else ""


def test_what_is_as_it_was_made_is_sound(folder: Path) -> None:
    (site(folder) / "trl" / "__pycache__").mkdir()
    (site(folder) / "trl" / "__pycache__" / "trainer.pyc").write_bytes(b"compiled")
    (folder / "pycache").mkdir()
    assert look(folder, Depth.CONTENTS) == ""


def without_dist_info(folder: Path) -> None:
    shutil.rmtree(site(folder) / INFO)


def another_version(folder: Path) -> None:
    shutil.rmtree(site(folder) / INFO)
    made_environment.add(folder, "trl", "1.13.0", {"trl/__init__.py": ""})


def dangling_interpreter(folder: Path) -> None:
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to(folder / "nothing")


def another_interpreter(folder: Path) -> None:
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to("/bin/sh")


def changed_settings(folder: Path) -> None:
    text = (folder / "pyvenv.cfg").read_text()
    replace(folder / "pyvenv.cfg", text.replace("packages = false", "packages = true"))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (without_dist_info, "trl 1.12.0: its dist-info is missing"),
        (lambda f: (site(f) / INFO / "METADATA").unlink(), "trl 1.12.0: its dist-info is missing"),
        (shutil.rmtree, "it is missing"),
        (another_version, "trl 1.13.0 instead of 1.12.0"),
        (lambda f: made_environment.add(f, "trl", "1.13.0", {}), "trl 1.13.0 was added"),
        (lambda f: made_environment.add(f, "pip", "24.0", {}), "pip 24.0 was added"),
        (lambda f: shutil.rmtree(f / "bin"), "its interpreter is missing"),
        (dangling_interpreter, "its interpreter is missing"),
        (another_interpreter, "its interpreter was replaced"),
        (changed_settings, "its pyvenv.cfg was changed"),
        (lambda f: shutil.rmtree(f / "lib"), "its dist-info is missing"),
    ],
)
def test_distributions_and_interpreter_are_always_compared(
    folder: Path, harm: Callable[[Path], None], said: str
) -> None:
    made = damage.noted(folder)
    assert made is not None
    harm(folder)
    assert said in damage.sentence(damage.find(folder, made, Depth.VERSIONS))


def empty_a_module(folder: Path) -> None:
    replace(site(folder) / "trl" / "trainer.py", "")


def unreadable(folder: Path) -> None:
    replace(site(folder) / "six.py", "moves = 1\n")
    (site(folder) / "six.py").chmod(0)


def a_folder_in_place_of_a_module(folder: Path) -> None:
    (site(folder) / "six.py").unlink()
    (site(folder) / "six.py").mkdir()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (site(f) / "trl" / "trainer.py").unlink(), "trl/trainer.py is missing"),
        (empty_a_module, "trl/trainer.py has a different size"),
        (unreadable, "six.py cannot be read"),
        (a_folder_in_place_of_a_module, "six.py is not a file"),
        (lambda f: (site(f) / "planted.py").write_text(""), "planted.py belongs to no package"),
        (lambda f: (site(f) / "trl" / "x.py").write_text(""), "trl/x.py belongs to no package"),
        (lambda f: (site(f) / "x.pth").write_text(""), "x.pth belongs to no package"),
        (lambda f: (site(f) / INFO / "RECORD").unlink(), "its RECORD cannot be read"),
        (lambda f: replace(site(f) / INFO / "RECORD", ""), "belongs to no package"),
    ],
)
def test_files_are_compared_by_their_size(
    folder: Path, harm: Callable[[Path], None], said: str
) -> None:
    harm(folder)
    assert look(folder, Depth.VERSIONS) == ""
    assert said in look(folder, Depth.SIZES)


def test_a_module_with_other_content_of_the_same_size_is_found(folder: Path) -> None:
    replace(site(folder) / "six.py", "moves = 2\n")
    assert look(folder, Depth.SIZES) == ""
    assert "six.py has different content" in look(folder, Depth.CONTENTS)


def test_how_much_more_there_is_is_said(folder: Path) -> None:
    (site(folder) / "six.py").unlink()
    (site(folder) / "trl" / "trainer.py").unlink()
    assert look(folder, Depth.SIZES).endswith("is missing (and 1 more)")


def test_what_packages_overwrite_of_each_other_is_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    made_environment.make(folder)
    made_environment.add(folder, "first", "1.0", {"tests/__init__.py": "first"})
    made_environment.add(folder, "second", "1.0", {"tests/__init__.py": "second's"})
    made_environment.add(folder, "third", "1.0", {"third.py": "never installed"})
    (site(folder) / "third.py").unlink()
    damage.note(folder)
    assert look(folder, Depth.CONTENTS) == ""
    replace(site(folder) / "tests" / "__init__.py", "neither")
    assert "tests/__init__.py has a different size" in look(folder, Depth.CONTENTS)


def test_an_environment_without_notes_is_held_against_its_lock(folder: Path) -> None:
    (folder / damage.NOTES).unlink()
    made = Made(frozenset({"trl==", "six==1.17.0"}))  # a commit may be of any version
    assert damage.find(folder, made, Depth.CONTENTS) == []
    shutil.rmtree(site(folder) / INFO)
    assert damage.find(folder, made, Depth.VERSIONS) == ["trl: it is missing"]


STACK = Stack.model_validate(
    {
        "as_of": "2026-11-21",
        **dict.fromkeys(("torch", "transformers", "accelerate", "deepspeed", "peft"), "1.0"),
        "trl": "1.12.0",
    }
)


@pytest.fixture
def ensured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], build.Environment]]:
    """What makes the environment ready, with installing replaced by the small one."""
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(locks, "interpreter_of", lambda _: interpreters.own())
    monkeypatch.setattr(locks, "resolve", lambda *_: LOCK)
    made: list[Path] = []

    def make(folder: Path, *_: object) -> None:
        made.append(folder)
        made_environment.make(folder)

    monkeypatch.setattr(build, "make", make)
    yield lambda: build.ensure("small", STACK)
    for folder in made:
        build.put_aside(folder)  # the process no longer notes that it uses it


def test_a_sound_environment_is_made_once(ensured: Callable[[], build.Environment]) -> None:
    first = ensured()
    assert ensured().instance == first.instance
    assert build.wrong_with(first, Depth.CONTENTS) == ""


@pytest.mark.parametrize(
    "harm",
    [
        without_dist_info,
        shutil.rmtree,
        lambda f: (site(f) / "trl" / "trainer.py").unlink(),
        lambda f: (f / "lock.txt").unlink(),
        lambda f: replace(f / "lock.txt", "six==1.17.0\n"),
    ],
)
def test_a_damaged_environment_is_made_again(
    ensured: Callable[[], build.Environment], harm: Callable[[Path], None]
) -> None:
    first = ensured()
    harm(first.folder)
    assert build.wrong_with(first, Depth.SIZES)
    second = ensured()
    assert second.instance != first.instance
    assert build.wrong_with(second, Depth.CONTENTS) == ""
    # Another run that used the first one must not believe what it saw, though all is well again.
    assert "another run" in build.wrong_with(first, Depth.VERSIONS)


def test_what_another_run_still_uses_is_put_aside_and_not_removed(
    ensured: Callable[[], build.Environment],
) -> None:
    folder = ensured().folder
    script = "import fcntl, os, sys\n"
    script += f"fcntl.flock(os.open({str(folder / build.IN_USE)!r}, os.O_RDWR), fcntl.LOCK_SH)\n"
    script += "print('used', flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "used\n"
        (site(folder) / "six.py").unlink()
        ensured()
        (aside,) = cache.folder("damaged").iterdir()
        assert (site(aside) / "trl" / "trainer.py").is_file()
        other.stdin.close()
    (site(folder) / "six.py").unlink()
    ensured()
    assert list(cache.folder("damaged").iterdir()) == []


def test_a_read_of_the_notes_survives_anything_in_them(folder: Path) -> None:
    for text in ("", "[]", "{}", '{"packages": 1}', "\0"):
        (folder / damage.NOTES).write_text(text)
        assert damage.noted(folder) is None
    (folder / damage.NOTES).write_bytes(b"\xff")
    assert damage.noted(folder) is None


def test_versions_are_compared_quickly_enough_to_do_it_for_each_cell(folder: Path) -> None:
    """No file but the notes' own is opened: the names of folders are enough."""
    made = damage.noted(folder)
    assert made is not None
    opened: list[str] = []
    reading = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if reading and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    damage.find(folder, made, Depth.VERSIONS)
    reading = False
    assert [os.path.basename(path) for path in opened] == ["pyvenv.cfg"]
