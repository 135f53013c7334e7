"""The harness's folder in the user's cache: locks, wheels and environments, safe for many runs."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
from filelock import FileLock


def root() -> Path:
    """``TRL_COMPAT_CACHE``, or ``trl-compat`` in the user's cache folder."""
    chosen = os.environ.get("TRL_COMPAT_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("trl-compat"))


def folder(name: str) -> Path:
    """A folder of the cache, made if need be."""
    path = root() / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def guard(path: Path) -> FileLock:
    """A lock between processes for the making of one file or folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{path}.lock")


def write(path: Path, text: str) -> None:
    """Writes a file so that a reader sees all of it or nothing."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
