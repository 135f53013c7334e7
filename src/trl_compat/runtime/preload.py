"""The parent that has done a stack's imports: reads orders from stdin, forks one launcher a cell.

One line of JSON in, one line of JSON out:

* ``{"spec": PATH, "room": BOOL}`` forks a launcher for the cell; the answer ``{"pid": N}`` comes at
  once and ``{"ended": N, "status": S}`` when the launcher is gone (``S`` as
  ``os.waitstatus_to_exitcode``).
* end of input ends the parent.

The parent itself never creates a tensor on an accelerator, a process group or a thread, so every
cell forks from the same state; whatever a cell does dies with its launcher.  A stack whose imports
do so is not forked: :mod:`.forkable` says why, and the harness starts its ranks by ``torchrun``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import traceback
from pathlib import Path

from . import confine
from .confine import adopt_orphans, die_with_parent
from .context import at_least
from .forkable import Imports
from .launch import launch_forked
from .spec import CellSpec

# What the scenarios import sooner or later, in the order in which users' scripts do.
STACK = ("torch", "transformers", "datasets", "accelerate", "deepspeed", "peft", "trl")
GRPO = "trl.trainer.grpo_trainer"
# What those import only when first used (found by profiling a rank): paid once here instead of in
# every rank.  A release that lacks one of them goes without.
LAZY = (
    "torch.distributed.launcher.api",
    "torch.distributed.run",
    "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
    "torch.distributed.fsdp",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "numpy.ctypeslib",
    "transformers.models.mistral.modeling_mistral",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.trainer",
    "transformers.integrations.integration_utils",
    "transformers.integrations.deepspeed",
    "deepspeed.runtime.zero.stage3",
    "trl.models.utils",
    GRPO,
    "trl.trainer.online_dpo_trainer",
    "trl.trainer.ppov2_trainer",
    "trl.trainer.ppo_trainer",
    "trl.experimental.ppo",
    "trl.experimental.online_dpo",
)
# To load a model, transformers looks through one of these, and imports the configuration of every
# model in it for that: a hundred modules.
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING")
# From this release on, making an engine imports torch's compiler (1.5 s in every rank).
COMPILER, COMPILER_SINCE = "torch._inductor.compile_fx", "2.9.0"


def grpo_changes_others() -> bool:
    """Whether importing GRPO changes what the other trainers' configurations read.

    Then only ranks that use GRPO import it.  See :data:`.forkable.SHARED`.
    """
    trl = at_least("trl", "0.17.0") and not at_least("trl", "0.19.0")
    return trl and not at_least("transformers", "4.51.0")


def import_stack() -> Imports:
    """Imports the stack, as far as it can be: what cannot is raised again by the ranks that do."""
    imports = Imports()
    with imports.begin():
        compiler = (COMPILER,) if at_least("torch", COMPILER_SINCE) else ()
        for name in (*STACK, *LAZY, *compiler):
            if name != GRPO or not grpo_changes_others():
                imports.module(name)
        for name in MAPPINGS:
            with contextlib.suppress(BaseException):  # a release may raise anything
                getattr(importlib.import_module("transformers"), name).keys()
    # What scenarios need of ours: it has no bytecode, so each rank would compile it again.
    for ours in pkgutil.iter_modules([os.path.dirname(__file__)]):
        if not ours.ispkg:  # losses count for the cells that import them only
            importlib.import_module(f"{__package__}.{ours.name}")
    return imports


def without_bytecode() -> list[str]:
    """The sources of what was imported that had to be compiled, because no bytecode was there."""
    found = []
    for module in list(sys.modules.values()):
        spec = getattr(module, "__dict__", {}).get("__spec__")  # no lazy module must notice this
        source, cached = getattr(spec, "origin", None), getattr(spec, "cached", None)
        if isinstance(source, str) and isinstance(cached, str) and not os.path.exists(cached):
            found.append(source)
    return found


def keep_to_itself(folder: Path, room: bool) -> None:
    """Restricts a launcher to its cell's folder and home: what later cells read stays as it is.

    Args:
        room: whether the processes of this stack have a room, and shared memory, of their own.
    """
    home = Path(os.environ["HOME"])
    if room:
        empty(Path("/dev/shm"))
    if confine.landlock_version():
        # Devices and the like are restricted already, by whoever started this parent.
        devices = [Path("/dev"), Path("/proc")]
        confine.restrict(writable=[folder, home, Path("/dev/shm")], devices=devices)


def empty(folder: Path) -> None:
    """Removes what an earlier cell left in a folder."""
    for left in folder.iterdir():
        with contextlib.suppress(OSError):
            left.unlink() if left.is_symlink() or not left.is_dir() else shutil.rmtree(left)


def reap_adopted() -> None:
    """Takes note of the end of what earlier cells left behind, so that no zombie stays."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run_cell(spec_file: str, room: bool) -> None:
    """The forked launcher: runs the cell and leaves without running the parent's exit handlers."""
    status = 1
    try:
        os.setsid()
        die_with_parent()
        adopt_orphans()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        spec = CellSpec.read(Path(spec_file))
        log = os.open(Path(spec.folder) / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        keep_to_itself(Path(spec.folder), room)
        launch_forked(spec)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Imports the stack, says so, and serves orders until stdin ends."""
    die_with_parent()
    adopt_orphans()
    # Orders and answers get file descriptors of their own; what a package prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    gc.disable()
    imports = import_stack()
    gc.collect()
    # What the imports made stays, so no rank has to look at it again: accelerate, DeepSpeed and the
    # trainers collect so often that this took half of a cell's time.
    gc.freeze()
    gc.enable()
    ready = {"ready": True, "unsafe": imports.unsafe(), "uncompiled": without_bytecode()}
    answers.write(json.dumps(ready) + "\n")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            answers.close()
            order = json.loads(line)
            run_cell(order["spec"], order["room"])
        answers.write(json.dumps({"pid": pid}) + "\n")
        _, status = os.waitpid(pid, 0)
        reap_adopted()
        answers.write(
            json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}) + "\n"
        )
    os._exit(0)


if __name__ == "__main__":
    serve()
