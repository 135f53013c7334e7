"""What the zip application does first: it unpacks itself into the user's cache and starts.

This file is ``__main__.py`` of the application.  The interpreter that runs it may be that of the
environment to check, so nothing is written there: bytecode goes to the cache, too.  A Python that
is too old for the harness looks for a newer one and hands over to it; cells still run in the
environment of the one that was called.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OLDEST, NEWEST = 11, 19  # of Python 3
# What this program and the harness say to each other.
CALLED = "TRL_COMPAT_CALLED_PYTHON"


def main() -> None:
    """Starts ``trl-compat`` from the application that this file is in."""
    application = Path(__file__).resolve().parent
    called = os.environ.setdefault(CALLED, sys.executable)
    if sys.version_info < (3, OLDEST):
        hand_over(application)
    digest = hashlib.sha256(application.read_bytes()).hexdigest()[:16]
    folder = unpack(application, digest)
    sys.pycache_prefix = str(folder / "bytecode")
    sys.path.insert(0, str(folder / "site"))
    # For the harness's own processes; cells get none of the user's variables.
    os.environ.update(
        PYTHONPYCACHEPREFIX=str(folder / "bytecode"),
        PYTHONPATH=str(folder / "site"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        PYDANTIC_DISABLE_PLUGINS="__all__",
    )
    from trl_compat.cells import rerun

    python = rerun.program(Path(called), "python")
    os.environ[rerun.PROGRAM] = f"{python} {rerun.shown(application)}"
    importlib.import_module("trl_compat.cli").main()


def hand_over(application: Path) -> None:
    """Goes on as a newer interpreter of this machine, if there is one; ends the process."""
    for minor in range(NEWEST, OLDEST - 1, -1):
        path = shutil.which(f"python3.{minor}")
        if path is not None and works(path):
            os.execv(path, [path, str(application), *sys.argv[1:]])
    version = ".".join(map(str, sys.version_info[:2]))
    sys.exit(
        f"trl-compat: Python 3.{OLDEST} or newer is needed to run the harness, and this is Python "
        f"{version}; none is on the PATH. Cells can use this one: run the application with a newer "
        f"Python, and name this one: check --python {sys.executable}"
    )


def works(python: str) -> bool:
    """Whether an interpreter starts; a name on the path may be one that starts nothing."""
    try:
        done = subprocess.run([python, "-c", ""], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def unpack(application: Path, digest: str) -> Path:
    """The folder with the application's files, unpacked once for each version of it."""
    chosen = os.environ.get("TRL_COMPAT_CACHE")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trl-compat"
    base = Path(chosen) if chosen else cache
    folder = base / "application" / digest
    if (folder / "site").is_dir():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=str(folder)))
    except OSError:  # a home that cannot be written to
        folder = Path(tempfile.mkdtemp(prefix="trl-compat-application-"))
        atexit.register(shutil.rmtree, str(folder), ignore_errors=True)
        draft = folder / "draft"
    with zipfile.ZipFile(str(application)) as packed:
        packed.extractall(str(draft), [n for n in packed.namelist() if n.startswith("site/")])
    try:
        (draft / "site").rename(folder / "site")
    except OSError:
        if not (folder / "site").is_dir():  # else another process was first
            raise
    shutil.rmtree(str(draft), ignore_errors=True)
    return folder


if __name__ == "__main__":
    main()
