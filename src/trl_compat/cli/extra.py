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

TO_RUN = {"psutil": "psutil", "pytest": "pytest", "xdist": "pytest-xdist"}
TO_BUILD = {"unearth": "unearth"}


def missing(*, to_build: bool = True) -> list[str]:
    """The packages of the extra that are not installed.

    Args:
        to_build: stacks have to be built, too, before cells are run in them.
    """
    modules = {**TO_RUN, **(TO_BUILD if to_build else {})}
    found = [name for module, name in modules.items() if not _there(module)]
    if not to_build:
        return found
    beside = Path(sys.executable).with_name("uv")
    return found if beside.is_file() or shutil.which("uv") else [*found, "uv"]


def require(command: str, *, to_build: bool = True) -> None:
    """Refuses a command that runs cells where what it needs is not installed.

    Raises:
        BadInput: something is missing.
    """
    if lacking := missing(to_build=to_build):
        raise BadInput(
            f"{command} runs cells and needs packages that are not installed "
            f"({', '.join(lacking)}); install trl-compat with its extra: python -m pip install "
            f"'.[{'matrix' if to_build else 'check'}]' in a clone"
        )


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
