"""The kit for a machine with a GPU and no network, and the one command that uses it there.

The application is a small program here that says how it was called.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.harness import small_stack
from tests.harness.conftest import ROOT
from trl_compat.errors import BadInput
from trl_compat.publishing import kit

SCRIPT = ROOT / "tools" / "check_on_gpu.py"
TORCH = """
import types
__version__ = "2.13.0+cu130"
cuda = types.SimpleNamespace(device_count=lambda: {gpus})
"""
# In place of the application: what it was told, and what the environment that it is given imports.
APPLICATION = """
import json, subprocess, sys, time
python = sys.argv[sys.argv.index("--python") + 1]
names = "import json, trl, torch, tool; print(json.dumps([trl.what, torch.__version__]))"
done = subprocess.run([python, "-c", names], capture_output=True, text=True)
print(json.dumps([sys.argv[1:], done.stdout.strip(), done.stderr.strip()]))
{then}
"""


def wheel(folder: Path, name: str, files: dict[str, str], tag: str = "py3-none-any") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as packed:
        packed.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
        for path, text in files.items():
            packed.writestr(path, text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with an environment that has a torch and a trl of its own, and the kit."""
    small_stack.make(tmp_path / "base")
    site = small_stack.site(tmp_path / "base")
    (site / "torch" / "__init__.py").write_text(TORCH.format(gpus=2))
    (site / "trl" / "__init__.py").write_text("what = 'that of the machine'\n")
    folder = tmp_path / "kit"
    wheel(folder / "wheels", "trl", {"trl/__init__.py": "what = 'that of the kit'\n"})
    files = {"tool-1.0.data/purelib/tool.py": "", "tool-1.0.data/scripts/tool": "#!python\n"}
    wheel(folder / "wheels", "tool", {**files, "../outside.py": ""})
    application(folder, "")
    shutil.copy(SCRIPT, folder)
    return tmp_path


def application(folder: Path, then: str) -> None:
    with zipfile.ZipFile(folder / "trl-compat.pyz", "w") as packed:
        packed.writestr("__main__.py", APPLICATION.format(then=then))


def run(machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    python = str(machine / "base" / "bin" / "python")
    env = {**os.environ, "TMPDIR": str(machine)}
    return subprocess.run(
        [python, str(machine / "kit" / "check_on_gpu.py"), *words],
        cwd=machine,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_the_wheels_stand_beside_the_torch_that_is_there(machine: Path) -> None:
    before = sorted(machine.glob("base/**/*"))
    done = run(machine, "--", "--profile", "full")
    assert done.returncode == 0, done.stderr
    words, imported, error = json.loads(done.stdout.splitlines()[-1])
    assert error == ""
    assert json.loads(imported) == ["that of the kit", "2.13.0+cu130"]
    assert words[:2] == ["check", "--python"]
    assert words[3:] == [
        *("--device", "cuda", "--reports", "trl-compat-check", "--profile", "full"),
    ]
    left = {path.name for path in machine.iterdir()}
    assert left == {"base", "kit"}  # nothing of its own is left, and nothing outside was written
    compiled = [path for path in machine.glob("base/**/*") if "__pycache__" not in str(path)]
    assert sorted(compiled) == [path for path in before if "__pycache__" not in str(path)]


@pytest.mark.parametrize(
    ("gpus", "words", "expected"),
    [
        (1, (), ["--device", "cuda", "--share-gpu"]),
        (8, (), ["--device", "cuda"]),
        (0, ("--cpu",), ["--device", "cpu"]),
    ],
)
def test_one_gpu_is_shared(
    machine: Path, gpus: int, words: tuple[str, ...], expected: list[str]
) -> None:
    path = small_stack.site(machine / "base") / "torch" / "__init__.py"
    path.write_text(TORCH.format(gpus=gpus))
    done = run(machine, *words)
    told = json.loads(done.stdout.splitlines()[-1])[0]
    assert told[3 : told.index("--reports")] == expected


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("no torch", "cannot import torch (ModuleNotFoundError"),
        ("no gpu", "sees no GPU; is the driver there?"),
        ("no wheels", "there should be trl-compat.pyz and wheels; make them: nox -s kit"),
        ("no application", "there should be trl-compat.pyz"),
        ("other python", "is not for Python 3."),
    ],
)
def test_what_is_missing_is_one_sentence(machine: Path, wrong: str, told: str) -> None:
    torch = small_stack.site(machine / "base") / "torch"
    match wrong:
        case "no torch":
            shutil.rmtree(torch)
        case "no gpu":
            (torch / "__init__.py").write_text(TORCH.format(gpus=0))
        case "no wheels":
            shutil.rmtree(machine / "kit" / "wheels")
        case "no application":
            (machine / "kit" / "trl-compat.pyz").unlink()
        case "other python":
            wheel(machine / "kit" / "wheels", "fast", {}, "cp38-cp38-manylinux_2_17_x86_64")
    done = run(machine)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("tags", "fits"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("cp312-cp312-manylinux_2_28_x86_64", True),
        ("cp311-cp311-manylinux_2_28_x86_64", False),
        ("cp38-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64", True),
        ("cp313-abi3-manylinux2014_x86_64", False),
        ("py2-none-any", False),
    ],
)
def test_a_wheel_fits_a_python_by_its_tags(tags: str, fits: bool) -> None:
    script = runpy.run_path(str(SCRIPT))
    assert script["fits"](Path(f"name-1.0-{tags}.whl"), "3.12") is fits


def test_the_exit_code_is_that_of_the_check(machine: Path) -> None:
    application(machine / "kit", "sys.exit(1)")
    assert run(machine).returncode == 1


def test_when_time_is_over_it_is_interrupted_and_writes_its_results(machine: Path) -> None:
    then = (
        "import signal\n"
        "def interrupted(*_):\n"
        "    open('results.json', 'w').close()\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGINT, interrupted)\n"
        "signal.pause()\n"
    )
    application(machine / "kit", then)
    done = run(machine, "--minutes", "0.55")  # three seconds, and those that reports take
    assert done.returncode == 130
    assert "time is over; writing the results" in done.stdout
    assert (machine / "results.json").is_file()


def test_torch_and_what_belongs_to_its_build_stays_at_home() -> None:
    packages = {
        **{"torch": "2.13.0", "triton": "3.5", "nvidia-nccl-cu13": "2.27", "cuda-bindings": "13"},
        **{"torchao": "0.1", "trl": "1.16.0", "nvidia": "1"},
    }
    assert kit.pins(packages) == ["nvidia==1", "torchao==0.1", "trl==1.16.0"]


def test_a_stack_with_a_commit_cannot_travel() -> None:
    with pytest.raises(BadInput, match="trl of this stack is no release"):
        kit.pins({"trl": "git+https://github.com/huggingface/trl@724acb971"})


def test_a_wheel_that_no_index_has_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BadInput, match=r"no wheel of six==1\.17\.0 for Python 3\.12: ") as error:
        kit.download(["six==1.17.0"], tmp_path / "wheels", "3.12", "x86_64")
    assert "\n" not in str(error.value)
