"""One file that runs the harness with any Python that is new enough, and writes nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.harness import small_stack
from trl_compat.publishing import zip_application, zip_main
from trl_compat.results import read

HERE = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / "trl-compat.pyz"
    zip_application.build(Path(zip_application.__file__).parents[3], path, [HERE], "")
    return path


def run(
    application: Path, *words: str, python: str = sys.executable, **env: str
) -> subprocess.CompletedProcess[str]:
    cache = application.parent / "cache"
    given = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "TRL_COMPAT_CACHE": str(cache), **env}
    return subprocess.run(
        [python, str(application), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=application.parent,
        env=given,
    )


def bare(folder: Path) -> Path:
    """An interpreter beside which nothing is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.matrix
def test_it_brings_all_that_check_needs_and_checks_the_environment_that_runs_it(
    application: Path, tmp_path: Path
) -> None:
    python = bare(tmp_path / "bare")
    done = run(application, "check", python=str(python))
    assert done.returncode == 2
    told = f"--python {python}: torch, transformers, accelerate and trl are not installed there"
    assert told in done.stderr
    assert run(application, "fix", "--list", python=str(python)).returncode == 0
    left = [path for path in (tmp_path / "bare").rglob("*") if "trl" in path.name]
    assert left == []


@pytest.mark.matrix
def test_it_contains_advisories_reproductions_and_models(application: Path) -> None:
    with zipfile.ZipFile(application) as packed:
        names = set(packed.namelist())
    shipped = "site/trl_compat/shipped"
    assert f"{shipped}/advisories/ppo-zero3-save.yaml" in names
    assert f"{shipped}/tests/reproductions/ppo_zero3_save.py" in names
    assert f"{shipped}/tiny_models/tiny-qwen2/model.safetensors" in names
    assert f"{shipped}/tiny_models/SHA256SUMS" in names
    assert not any("__pycache__" in name for name in names)


@pytest.mark.matrix
def test_it_gets_to_the_cells_of_an_environment_without_a_checkout(
    application: Path, tmp_path: Path
) -> None:
    """Its torch is an empty package, so the launcher fails; that is told, and nothing changed."""
    small_stack.make(tmp_path / "venv")
    python = str(tmp_path / "venv" / "bin" / "python")
    words = ("--failure", "grpo-fsdp-ref-device", "--variant", "ddp", "--model", "tiny-qwen2")
    done = run(application, "check", "--python", python, *words, "--jobs", "1", "--device", "cpu")
    assert done.returncode == 1, done.stderr
    assert "nothing in the environment changed" in done.stdout
    found = read(application.parent / "trl-compat-check" / "results.json")
    assert found is not None
    (cell,) = found.cells
    assert f"{application.name} check --failure grpo-fsdp-ref-device" in cell.command


def test_bytecode_and_files_go_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "cache"))
    application = tmp_path / "a.pyz"
    with zipfile.ZipFile(application, "w") as packed:
        packed.writestr("__main__.py", "")
        packed.writestr("site/one.py", "")
        packed.writestr("other/two.py", "")
    folder = zip_main.unpack(application, "digest")
    assert folder == tmp_path / "cache" / "application" / "digest"
    assert [path.name for path in folder.iterdir()] == ["site"]
    assert (folder / "site" / "one.py").is_file()
    (folder / "site" / "one.py").write_text("kept")
    assert zip_main.unpack(application, "digest") == folder
    assert (folder / "site" / "one.py").read_text() == "kept"  # unpacked once


def test_a_cache_that_cannot_be_written_is_replaced_for_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    application = tmp_path / "a.pyz"
    with zipfile.ZipFile(application, "w") as packed:
        packed.writestr("site/one.py", "")
    folder = zip_main.unpack(application, "digest")
    assert (folder / "site" / "one.py").is_file()
    assert folder.parent == tmp_path
    shutil.rmtree(folder)


def test_a_python_that_is_too_old_looks_for_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, works = tmp_path / "python3.14", tmp_path / "python3.12"
    broken.write_text("#!/bin/sh\nexit 1\n")
    works.write_text("#!/bin/sh\nexit 0\n")
    for path in (broken, works):
        path.chmod(0o755)
    called: list[list[str]] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["x", "check", "--jobs", "2"])

    def execute(path: str, words: list[str]) -> None:
        called.append([path, *words])
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execute)
    with pytest.raises(SystemExit):
        zip_main.hand_over(tmp_path / "a.pyz")
    assert called == [[str(works), str(works), str(tmp_path / "a.pyz"), "check", "--jobs", "2"]]


def test_without_a_newer_one_a_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        zip_main.hand_over(tmp_path / "a.pyz")
    assert "Python 3.11 or newer is needed" in str(end.value)
    assert f"check --python {sys.executable}" in str(end.value)
