"""An environment, read from the metadata of its packages; nothing in it is imported.

Another interpreter is only asked for its ``sys.path`` and its version, in isolated mode; the files
are read here.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.machine import commands
from trl_compat.packages import PACKAGES
from trl_compat.stacks.sources.source import Pins, Source

ASK = "import json, sys; print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.path]))"


def installed(python: Path | None = None, required: str | None = "trl") -> Source:
    """The environment of an interpreter; of this one if none is named.

    Args:
        required: the package without which it is of no interest; None for any environment.

    Raises:
        BadInput: the interpreter cannot be asked, there is no TRL, or TRL is of no known version.
    """
    if python is None:
        name, version, path = "this environment", platform.python_version(), sys.path
    else:
        name, (version, path) = str(python), _ask(python)
    pins = Pins(name)
    seen: set[str] = set()
    for distribution in distributions(path=path):
        package = _name(distribution)
        # The first on the path is the one that is imported.
        if package and package not in seen:
            seen.add(package)
            _package(package, distribution, pins)
    return pins.source("environment", python=version, required=required)


def _ask(python: Path) -> tuple[str, list[str]]:
    try:
        done = commands.run([str(python), "-I", "-B", "-c", ASK], limit=20)
        done.check_returncode()
        # What is installed there may print something of its own before.
        version, path = json.loads(done.stdout.strip().rpartition("\n")[2])
        known = str(Version(version))
    except FileNotFoundError:
        raise BadInput(f"--python {python}: no such file") from None
    except (OSError, ValueError, TypeError, RecursionError, subprocess.SubprocessError):
        raise BadInput(f"--python {python}: not a working Python interpreter") from None
    if not isinstance(path, list) or not all(isinstance(folder, str) for folder in path):
        raise BadInput(f"--python {python}: not a working Python interpreter")
    return known, path


def _name(distribution: Distribution) -> str | None:
    """Canonical name; from the folder's name, which spares reading every METADATA file."""
    folder = getattr(distribution, "_path", None)
    if folder is not None and folder.suffix == ".dist-info":
        return str(canonicalize_name(folder.stem.partition("-")[0]))
    name = distribution.metadata["Name"]
    return str(canonicalize_name(name)) if name else None


def _version(distribution: Distribution) -> str:
    folder = getattr(distribution, "_path", None)
    if folder is not None and folder.suffix == ".dist-info":
        return str(folder.stem.partition("-")[2])
    return distribution.version or ""


def _package(package: str, distribution: Distribution, pins: Pins) -> None:
    try:
        version = Version(_version(distribution))
    except InvalidVersion:
        if package in PACKAGES:
            raise BadInput(f"{pins.name}: {package} has no version; reinstall it") from None
        return
    if package not in PACKAGES:
        pins.exact(package, str(version))
        return
    try:
        origin = _origin(distribution)
        vcs, folder = origin.get("vcs_info"), origin.get("dir_info")
        commit = (str(origin["url"]), vcs.get("commit_id")) if vcs else None
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError, BadInput):
        raise BadInput(f"{pins.name}: {package}: its direct_url.json cannot be read") from None
    if commit:
        pins.git(package, *commit)
    elif version.is_devrelease:
        pins.undecided(package, f"{package} {version} is not a release, and its commit is unknown")
    else:
        if folder is not None:
            pins.note(
                f"{package} was installed from a folder; its version {version} cannot be verified"
            )
        pins.exact(package, str(version))


def _origin(distribution: Distribution) -> dict[str, Any]:
    """Where it was installed from, if not from an index."""
    folder = getattr(distribution, "_path", None)
    path = None if folder is None else Path(str(folder)) / "direct_url.json"
    if path is None or not path.exists():
        return {}
    found: dict[str, Any] = reading.json_of(path)
    return found
