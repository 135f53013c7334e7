"""The environment variables of a cell: set from scratch, so that nothing of the user leaks in.

No tokens, credentials, proxies, caches or hub access: cells run old, vulnerable releases.
"""

from __future__ import annotations

import os
from pathlib import Path

from trl_compat.machine import isolation, processes
from trl_compat.runtime import offline
from trl_compat.stacks.providing import Environment

# What a driver or a loader of the machine needs to be found; no secret is ever kept in these.
PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TZ", "SYSTEMROOT")


def build(
    environment: Environment, home: Path, *, gpus: tuple[str, ...], run_id: str
) -> dict[str, str]:
    """The whole environment of the processes of a stack.

    Args:
        environment: of the stack; the folder of its interpreter comes first on the path.
        home: a private folder that stands for home, caches and temporary files.
        gpus: the GPUs that are the cell's alone, as CUDA_VISIBLE_DEVICES names them; none hides
            every GPU.
        run_id: marks all processes of this run, so that left-overs can be told.
    """
    temporary = home / "tmp"  # made anew for each cell, with its home
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env |= {
        "PATH": os.pathsep.join(
            [str(environment.python.parent), "/usr/local/bin", "/usr/bin", "/bin"]
        ),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(home / "cache"),
        "LANG": "C.UTF-8",
        "USER": "cell",  # getpass.getuser() must not need the machine's user database
        "HF_HOME": str(home / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "WANDB_MODE": "disabled",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_EXTENSIONS_DIR": str(home / "extensions"),
        # Beside the packages, which stay as they were installed; written before the first cell.
        "PYTHONPYCACHEPREFIX": str(environment.bytecode),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(home / "triton"),
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",  # what torchrun sets for more than one rank
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        processes.MARK: run_id,
    }
    env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if not gpus:
        env["DS_ACCELERATOR"] = "cpu"
    if not isolation.containment().network:
        env[offline.VARIABLE] = "1"
    return env
