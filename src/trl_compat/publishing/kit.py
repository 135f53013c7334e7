"""What a machine with a GPU, torch and no network needs to check a stack: a folder to copy there.

The zip application, the wheels of a stack without torch and what belongs to its build (that of the
machine is used), and the script that does the rest.  Run as ``python -m trl_compat.publishing.kit``
in a checkout (``nox -s kit``).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trl_compat.errors import BadInput
from trl_compat.publishing import zip_application
from trl_compat.stacks import matrix, providing
from trl_compat.stacks.environments import cache

SCRIPT = Path("tools", "check_on_gpu.py")
# What comes with a build of torch, or fits only the one that it was resolved with.
OF_TORCH = re.compile(r"torch|triton|pytorch-triton|nvidia-.*|cuda-.*")
# pip takes these by name, each for itself.
GLIBC = ("2_28", "2_27", "2_24", "2_17", "2_12", "2_5")
ALIASES = ("manylinux2014", "manylinux2010", "manylinux1")


def pins(packages: Mapping[str, str]) -> list[str]:
    """What of an environment travels, as requirements.

    Raises:
        BadInput: a package is from a git commit, which no index has as a wheel.
    """
    wanted = {name: v for name, v in sorted(packages.items()) if not OF_TORCH.fullmatch(name)}
    if other := [name for name, version in wanted.items() if not re.match(r"\d", version)]:
        raise BadInput(f"{other[0]} of this stack is no release; choose a stack of releases")
    return [f"{name}=={version}" for name, version in wanted.items()]


def platforms(machine: str) -> list[str]:
    """The options by which pip takes wheels for a Linux machine with glibc 2.28 or newer."""
    names = [*(f"manylinux_{glibc}" for glibc in GLIBC), *ALIASES, "linux"]
    return [word for name in names for word in ("--platform", f"{name}_{machine}")]


def download(wanted: list[str], folder: Path, python: str, machine: str) -> None:
    """Puts wheels into a folder; those that no index has are ours, if a stack has needed them.

    Raises:
        BadInput: there is no such wheel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in wanted:
        if _built(requirement, folder):
            continue
        words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        words += ["--python-version", python, *platforms(machine), requirement]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise BadInput(f"no wheel of {requirement} for Python {python}: {last}")


def _built(requirement: str, folder: Path) -> bool:
    """Copies a wheel of pure Python that was built here, because no index has one."""
    name, _, version = requirement.partition("==")
    found = sorted(cache.root().glob(f"wheels/{name}-{version}-py*/*-none-any.whl"))
    if found:
        shutil.copy(found[0], folder)
    return bool(found)


def main() -> None:
    """Makes the kit of this checkout."""
    parser = argparse.ArgumentParser(prog="kit", description="Makes a folder to copy.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("dist/gpu-kit"))
    parser.add_argument("--stack", default="newest", help="of matrix.yaml; torch is left out")
    parser.add_argument("--python", default="3.12", help="version on the other machine")
    parser.add_argument("--machine", default="x86_64", help="processor of the other machine")
    asked = parser.parse_args()
    checkout = Path(__file__).parents[3]
    table = matrix.load(checkout / "matrix.yaml")
    if asked.stack not in table.stacks:
        sys.exit(f"kit: unknown stack '{asked.stack}'")
    try:
        built = providing.ensure(asked.stack, table.stacks[asked.stack])
        wanted = pins(built.lock.packages)
        shutil.rmtree(asked.folder, ignore_errors=True)
        download(wanted, asked.folder / "wheels", asked.python, asked.machine)
    except BadInput as error:
        sys.exit(f"kit: {error}")
    target = f"{asked.machine}-manylinux_2_28"
    zip_application.build(
        checkout, asked.folder / "trl-compat.pyz", zip_application.PYTHONS, target
    )
    shutil.copy(checkout / SCRIPT, asked.folder)
    size = sum(path.stat().st_size for path in asked.folder.rglob("*") if path.is_file())
    print(f"{asked.folder}: {len(wanted)} wheels, {size / 1e6:.0f} MB")
    print(f"copy it to the other machine and run: python {asked.folder.name}/{SCRIPT.name}")


if __name__ == "__main__":
    main()
