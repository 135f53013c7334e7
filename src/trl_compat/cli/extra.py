"""What only the commands that run cells need: the extra ``matrix`` of the package.

Reading (doctor, explain, fix, constraints, plan, report) does without, so that it can stand beside
somebody's stack and add little to it.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from trl_compat.errors import BadInput

MODULES = {"psutil": "psutil", "pytest": "pytest", "xdist": "pytest-xdist", "unearth": "unearth"}


def missing() -> list[str]:
    """The packages of the extra that are not installed."""
    found = [name for module, name in MODULES.items() if not _there(module)]
    beside = Path(sys.executable).with_name("uv")
    return found if beside.is_file() or shutil.which("uv") else [*found, "uv"]


def require(command: str) -> None:
    """Refuses a command that runs cells where what it needs is not installed.

    Raises:
        BadInput: something is missing.
    """
    if lacking := missing():
        raise BadInput(
            f"{command} runs cells and needs packages that are not installed "
            f"({', '.join(lacking)}); install trl-compat with its extra: python -m pip install "
            "'.[matrix]' in a clone"
        )


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
