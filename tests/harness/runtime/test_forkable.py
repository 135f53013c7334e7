"""What a process's imports start is attributed to the module that started it, in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from trl_compat.runtime import forkable
from trl_compat.stacks import matrix
from trl_compat.stacks.environments import build

# Imports what the arguments name; says whether the process may be forked, and what it looks like.
SCRIPT = """
import _thread, os, sys, threading
start, new = threading.Thread.start, _thread.start_new_thread
from trl_compat.runtime.forkable import Imports

imports = Imports()
with imports.begin():
    for name in sys.argv[1:]:
        imports.module(name)
same = (threading.Thread.start, _thread.start_new_thread) == (start, new)
print(imports.unsafe(), same, "TORCH_WARM_POOL" in os.environ, sep="|", flush=True)
os._exit(0)
"""
WAITS = "import threading\nthreading.Thread(target=threading.Event().wait, name='pool').start()\n"
# Starts its pool as torch 2.7's _inductor/async_compile.py does.
COMPILER = f"import os\nif os.environ.get('TORCH_WARM_POOL', '1') == '1':\n    exec({WAITS!r})\n"
IN_C = """
import ctypes
c = ctypes.CDLL(None)
c.pthread_create(ctypes.byref(ctypes.c_ulong()), None, c.sleep, ctypes.c_void_p(99))
"""
BARE = "import _thread, time\ndef poll(): time.sleep(99)\n_thread.start_new_thread(poll, ())\n"
SHORT = "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()\n"
CUDA = "class cuda:\n    is_initialized = staticmethod(lambda: True)\n"
FAILS = "import engine.pool\nraise ImportError('not in this release')\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")


def imported(folder: Path, names: list[str], **modules: str) -> list[str]:
    """What is said of a process that has imported ``names`` out of these modules."""
    for name, text in modules.items():
        path = folder / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    *_, unsafe, same, left = done.stdout.strip().splitlines()[-1].split("|")
    assert (same, left) == ("True", "False"), done.stdout
    return [unsafe]


WITHOUT = "from trl_compat.runtime import forkable\nforkable.SETTINGS = ()\n"
THREADS = "its imports start threads, which do not survive a fork: "


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("", ""),
        (SHORT, ""),
        (COMPILER, ""),
        (WAITS, THREADS + "'pool' by engine.pool, which script imports"),
        (BARE, THREADS + "'poll' by engine.pool, which script imports"),
    ],
    ids=["none", "ended", "switched-off", "thread", "bare-thread"],
)
@pytest.mark.parametrize("script", ["import engine.pool", FAILS], ids=["imported", "failed"])
def test_the_module_that_started_a_thread_is_named(
    tmp_path: Path, pool: str, said: str, script: str
) -> None:
    modules = {"engine_in___init__": "", "engine_in_pool": pool, "script": script}
    assert imported(tmp_path, ["json", "script"], **modules) == [said]


def test_a_thread_that_a_library_in_c_started_is_attributed_to_the_import(tmp_path: Path) -> None:
    (said,) = imported(tmp_path, ["json", "native"], native=IN_C)
    assert said.startswith(THREADS)
    assert said.endswith("' by native")


def test_the_import_that_started_cuda_is_named(tmp_path: Path) -> None:
    said = imported(tmp_path, ["json", "torch"], torch=CUDA)
    assert said == ["importing torch starts CUDA, which does not survive a fork"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", ""),
        # As GRPOConfig of TRL 0.18 does it with transformers 4.50.
        (
            "from transformers.training_args import _VALID_DICT_FIELDS as f\nf.append('mine')\n",
            "importing grpo changes transformers.training_args._VALID_DICT_FIELDS",
        ),
        ("import transformers.training_args as t\nt._VALID_DICT_FIELDS + ['mine']\n", ""),
    ],
)
def test_an_import_that_changes_what_others_read_is_named(
    config: str, said: str, tmp_path: Path
) -> None:
    modules = {
        "transformers_in___init__": "",
        "transformers_in_training_args": "_VALID_DICT_FIELDS = ['deepspeed']\n",
        "grpo": config,
    }
    (unsafe,) = imported(tmp_path, ["transformers.training_args", "grpo"], **modules)
    assert unsafe.startswith(said)
    assert bool(unsafe) == bool(said)


def test_every_setting_of_the_parent_says_why_and_for_which_releases() -> None:
    for setting in forkable.SETTINGS:
        assert "2.5 to 2.8" in setting.reason


@pytest.mark.matrix
@pytest.mark.parametrize("with_settings", [True, False])
def test_the_setting_keeps_torch_from_starting_its_compile_workers(
    with_settings: bool, tmp_path: Path
) -> None:
    # torch asks for triton first, and triton 3.2 imports setuptools without requiring it.
    (tmp_path / "setuptools.py").touch()
    table = matrix.load(ROOT / "matrix.yaml")
    environment = build.ensure("trl-0.17.0", table.stacks["trl-0.17.0"])
    code = SCRIPT if with_settings else WITHOUT + SCRIPT
    done = subprocess.run(
        [str(environment.python), "-c", code, "torch", "torch._inductor.async_compile"],
        env={
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(tmp_path))),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    unsafe = done.stdout.strip().splitlines()[-1].partition("|")[0]
    assert ("(_read_thread)' by torch._inductor.async_compile" in unsafe) is not with_settings
    assert bool(unsafe) is not with_settings
