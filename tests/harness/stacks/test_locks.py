"""A kept lock is taken as it was kept, and a given one if it says which files it means."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from trl_compat.errors import BadInput
from trl_compat.stacks.environments import (
    Unavailable,
    Unresolvable,
    cache,
    interpreters,
    lock_text,
    locks,
    resolving,
)
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.matrix import Stack, load

CLI = Path(sys.executable).with_name("trl-compat")
SIX = ("torch", "transformers", "accelerate", "deepspeed", "peft", "trl")
STACK = Stack.model_validate({"as_of": "2026-11-21", **dict.fromkeys(SIX, "1.0")})
PYTHON = Interpreter("python", "3.11.1")
ZERO = "0" * 64
TEXT = "".join(f"{name}==1.0 \\\n    --hash=sha256:{ZERO}\n" for name in sorted(SIX))


@pytest.fixture
def resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often a stack was resolved."""
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path))
    calls: list[str] = []

    def resolve(*_: object) -> str:
        calls.append(TEXT)
        return TEXT

    monkeypatch.setattr(locks, "_resolve", resolve)
    return calls


def kept_file() -> Path:
    (found,) = cache.folder("locks").glob("*.txt")
    return found


def test_a_lock_is_resolved_once(resolved: list[str]) -> None:
    assert locks.kept(STACK, PYTHON) is None
    first = locks.resolve(STACK, PYTHON)
    assert locks.resolve(STACK, PYTHON) == first
    assert locks.kept(STACK, PYTHON) == first.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    assert len(resolved) == 1


@pytest.mark.parametrize(
    "damaged",
    [b"", TEXT[:-30].encode(), TEXT.replace("trl==1.0", "trl==1.1").encode(), b"\xff\x00\xfe"],
    ids=["empty", "truncated", "edited", "binary"],
)
def test_a_damaged_lock_is_resolved_again(resolved: list[str], damaged: bytes) -> None:
    locks.resolve(STACK, PYTHON)
    kept_file().write_bytes(damaged)
    assert locks.kept(STACK, PYTHON) is None
    assert locks.resolve(STACK, PYTHON).text == TEXT
    assert kept_file().read_text() == TEXT
    assert len(resolved) == 2


def test_a_lock_without_its_digest_is_of_an_older_harness_and_resolved_again(
    resolved: list[str],
) -> None:
    locks.resolve(STACK, PYTHON)
    for digest in cache.folder("locks").glob("*.sha256"):
        digest.unlink()
    assert locks.kept(STACK, PYTHON) is None
    locks.resolve(STACK, PYTHON)
    assert len(resolved) == 2


def test_what_may_be_built_does_not_change_the_lock(resolved: list[str]) -> None:
    locks.resolve(STACK, PYTHON)
    assert locks.kept(STACK.model_copy(update={"build": ("trl",)}), PYTHON) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it contains no package"),
        ("# only a comment\n", "it contains no package"),
        ("trl==1.0\n", r":1: 'trl==1\.0' has no hash"),
        (TEXT + f"numpy>=1 \\\n    --hash=sha256:{ZERO}\n", r":13: 'numpy>=1' is not pinned"),
        (TEXT + f"numpy==1.* --hash=sha256:{ZERO}\n", "is not pinned to one version"),
        (TEXT + f"numpy --hash=sha256:{ZERO}\n", "is not pinned to one version"),
        (TEXT + f"numpy[x]==1 --hash=sha256:{ZERO}\n", "names extras"),
        (TEXT + f"trl==1.0 --hash=sha256:{ZERO}\n", "trl is already listed in line 11"),
        (TEXT + "numpy==1 --hash=sha256:00\n", "'sha256:00' is not a hash"),
        (TEXT + "-e .\n", r"'-e \.' is an option"),
        (TEXT + "--index-url https://a.test\n", "is an option"),
        (TEXT + "= = =\n", "is not a requirement"),
        (TEXT[:-86], "has no hash"),
        (TEXT + f"numpy==1 \\\n    --hash=sha256:{ZERO} \\\n", "ends with an incomplete line"),
        (TEXT + "x @ https://a.test/x-1.0.tar.gz\n", "only git"),
        (TEXT + "x @ git+ssh://a.test/x@0123456\n", "only git"),
    ],
)
def test_a_given_lock_that_leaves_something_open_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with pytest.raises(BadInput, match=said) as error:
        locks.resolve(STACK.model_copy(update={"lock": path}), PYTHON)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", [b"\xff\x00", b"trl==1.0\0 --hash=sha256:00"])
def test_a_given_lock_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"mine\.txt"):
        locks.resolve(STACK.model_copy(update={"lock": path}), PYTHON)


def test_a_given_lock_may_have_comments_markers_and_commits(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    commit = "git+https://github.com/a/b@" + "0123456789" * 4
    path.write_bytes(
        ("# made by hand\r\n\r\n" + TEXT.replace("\n", "\r\n")).encode()
        + f"B.b @ {commit}  # a comment\n".encode()
        + f"c==1 ; python_version > '3' --hash=sha256:{ZERO}\n".encode()
    )
    lock = locks.resolve(STACK.model_copy(update={"lock": path}), PYTHON)
    assert lock.packages["b-b"] == commit
    assert lock.packages["c"] == "1"
    assert [e.marker for e in lock_text.entries(lock.text)] == [False] * 7 + [True]


def test_the_command_refuses_a_broken_lock_with_a_sentence(project_folder: Path) -> None:
    text = (project_folder / "matrix.yaml").read_text()
    (project_folder / "mine.txt").write_text("trl==0.11.4\n")
    old = "  old: {as_of: 2024-10-20,"
    (project_folder / "matrix.yaml").write_text(text.replace(old, f"{old} lock: mine.txt,"))
    sums = project_folder / "tiny_models" / "SHA256SUMS"
    digest, models = hashlib.sha256(b"").hexdigest(), ("tiny-qwen2", "tiny-mistral")
    sums.write_text("".join(f"{digest}  {model}/empty\n" for model in models))
    for model in models:
        (project_folder / "tiny_models" / model).mkdir()
        (project_folder / "tiny_models" / model / "empty").touch()
    command = [str(CLI), "--project", str(project_folder), "matrix", "--stack", "old"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "mine.txt:1: 'trl==0.11.4' has no hash" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("3.6", "Python 3.6: cells require Python 3.9 or newer"),
        ("2.7.18", "Python 2.7.18: cells require Python 3.9 or newer"),
        ("banana", "'banana' is not a Python version such as 3.11"),
        ("3", "'3' is not a Python version such as 3.11"),
        ("3.11.x", "'3.11.x' is not a Python version such as 3.11"),
    ],
)
def test_a_python_that_no_cell_can_run_on_is_refused(
    project_folder: Path, python: str, said: str
) -> None:
    path = project_folder / "matrix.yaml"
    old = "  old: {as_of: 2024-10-20,"
    path.write_text(path.read_text().replace(old, f"{old} python: '{python}',"))
    with pytest.raises(BadInput) as error:
        load(path)
    assert said in str(error.value)


def test_pythons_that_cells_can_run_on_are_taken() -> None:
    for python in ("3.9", "3.11.7", "3.14", "4.0"):
        assert (
            STACK.model_validate({**STACK.model_dump(by_alias=True), "python": python}).python
            == python
        )


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(wanted: str) -> Interpreter:
        raise Unavailable(f"no Python {wanted} on this machine")

    monkeypatch.setattr(interpreters, "find", find)


@pytest.mark.usefixtures("no_python")
def test_a_python_for_which_the_releases_are_not_made_is_no_matter_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    def refuses(lines: list[str], _: object, __: object, options: list[str]) -> str:
        asked.append([*lines, *options])
        raise Unresolvable("torch==2.4.1 has no wheels with a matching Python ABI tag")

    monkeypatch.setattr(resolving, "compile_requirements", refuses)
    with pytest.raises(Unresolvable, match="ABI tag"):
        locks.interpreter_of(STACK.model_copy(update={"python": "3.14"}))
    assert "3.14" in asked[0]
    assert "deepspeed==1.0" not in asked[0]  # it has no wheel for any Python


@pytest.mark.usefixtures("no_python")
def test_a_python_that_is_only_not_here_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "compile_requirements", lambda *_: "")
    with pytest.raises(Unavailable, match=r"no Python 3\.14 on this machine"):
        locks.interpreter_of(STACK.model_copy(update={"python": "3.14"}))


def test_names_of_packages_to_build_are_checked() -> None:
    with pytest.raises(ValueError, match="not a package name"):
        STACK.model_validate({**STACK.model_dump(by_alias=True), "build": ["a b"]})


@pytest.mark.matrix
def test_uv_itself_says_for_which_pythons_releases_are(no_python: None) -> None:
    torch = {**STACK.model_dump(by_alias=True), "torch": "2.4.1", "python": "3.14", "trl": "0.12.2"}
    more = {"transformers": "4.46.3", "accelerate": "0.34.2", "peft": "0.13.2"}
    stack = STACK.model_validate({**torch, **more, "as_of": "2024-12-12"})
    with pytest.raises(Unresolvable, match=r"torch==2\.4\.1 has no wheels with a matching Python"):
        locks.interpreter_of(stack)
