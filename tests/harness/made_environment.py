"""A small environment made by hand, with packages of a few lines, for tests that damage it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from trl_compat.stacks.environments import damage, interpreters, locks
from trl_compat.stacks.environments.uv import uv

FILES = {
    "trl": {"trl/__init__.py": "", "trl/trainer.py": "class PPOTrainer: ...\n"},
    "six": {"six.py": "moves = 1\n"},
}
VERSIONS = {"trl": "1.12.0", "six": "1.17.0"}
LOCK = locks.lock_of(
    "".join(f"{n}=={v} \\\n    --hash=sha256:00\n" for n, v in sorted(VERSIONS.items()))
)


def site(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def add(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Installs a package, as an installer would."""
    place = site(folder)
    info = f"{name}-{version}.dist-info"
    rows = []
    for path, text in {**files, f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n"}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(text)}\n")
    (place / info / "RECORD").write_text("".join([*rows, f"{info}/RECORD,,\n"]))


def make(folder: Path) -> None:
    """An environment of :data:`LOCK`, complete with its notes."""
    uv(["venv", "--quiet", "--python", interpreters.own().path, str(folder)])
    for name, version in VERSIONS.items():
        add(folder, name, version, FILES[name])
    damage.note(folder)
    (folder / "lock.txt").write_text(LOCK.text)


def replace(path: Path, text: str) -> None:
    """Another file at the same place; files of environments share their bytes with a cache."""
    path.unlink()
    path.write_text(text)
