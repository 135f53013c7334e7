"""Packs the harness with everything that it needs into one file that any Python 3.11+ runs.

For machines on which nothing can be installed: ``python trl-compat.pyz check``.  Some of the
harness's dependencies are compiled.  Their files carry the version of Python in their names, so
those of several versions lie side by side in one folder.

Run as ``python -m trl_compat.publishing.zip_application FILE`` in a checkout (``nox -s pyz``).
"""

from __future__ import annotations

import argparse
import platform
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trl_compat.stacks.environments.uv import uv

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MAIN = Path(__file__).with_name("zip_main.py")
SHEBANG = b"#!/usr/bin/env python3\n"
# A fixed date: the same files give the same application.
DATE = (2020, 1, 1, 0, 0, 0)


def build(checkout: Path, output: Path, pythons: Sequence[str], target: str) -> None:
    """Writes the application.

    Args:
        checkout: of trl-compat.
        output: the file.
        pythons: the versions that are to run it.
        target: the platform, as uv calls it; empty for this machine's.
    """
    with tempfile.TemporaryDirectory(prefix="trl-compat-pyz-") as folder:
        uv(["build", "--quiet", "--wheel", "-o", f"{folder}/wheel", str(checkout)])
        (wheel,) = Path(folder, "wheel").glob("*.whl")
        wanted = f"trl-compat[check] @ {wheel.as_uri()}"
        sites = []
        for python in pythons:
            site = Path(folder, python)
            install = ["pip", "install", "--quiet", "--only-binary", ":all:", "--target", str(site)]
            on = ["--python-platform", target] if target else []
            uv([*install, "--python-version", python, *on, wanted])
            sites.append(site)
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as file:
            file.write(SHEBANG)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
                _add(packed, "__main__.py", MAIN.read_bytes())
                for name, path in _merged(sites):
                    _add(packed, f"site/{name}", path.read_bytes())
    output.chmod(output.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _merged(sites: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Each file of several folders of packages once, the first folder's where they differ."""
    found: dict[str, Path] = {}
    for site in sites:
        for path in sorted(site.rglob("*")):
            inner = path.relative_to(site)
            if path.is_file() and "__pycache__" not in inner.parts and inner.parts[0] != "bin":
                found.setdefault(inner.as_posix(), path)
    yield from sorted(found.items())


def _add(packed: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    packed.writestr(entry, content)


def default_target() -> str:
    """This machine's platform; on Linux with the C library of systems since 2018."""
    return f"{platform.machine()}-manylinux_2_28" if sys.platform == "linux" else ""


def main() -> None:
    """Builds the application of this checkout."""
    parser = argparse.ArgumentParser(prog="zip_application", description="Builds trl-compat.pyz.")
    parser.add_argument("output", type=Path, nargs="?", default=Path("dist/trl-compat.pyz"))
    parser.add_argument("--python", action="append", help="a version that runs it; repeatable")
    parser.add_argument("--platform", default=default_target(), help="as uv calls it")
    asked = parser.parse_args()
    build(Path(__file__).parents[3], asked.output, asked.python or PYTHONS, asked.platform)
    print(f"{asked.output}: {asked.output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
