"""The runs on this machine: a cell's record refers to its run by id.

One small file per run that observed anything is stored beside the records of the cells.  A record
outlives the report of its run, so it needs to know where, when and how it was made.
"""

from __future__ import annotations

import datetime
import re
import secrets
from pathlib import Path

from pydantic import ValidationError

import trl_compat
from trl_compat.files.writing import write_atomically
from trl_compat.machine import host
from trl_compat.results import RunResult

ID = re.compile(r"[\w-]{1,64}")


def begin(command: str, profile: str) -> RunResult:
    """A run that begins now, on this machine."""
    now = datetime.datetime.now(datetime.UTC)
    return RunResult(
        id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started_at=now.isoformat(timespec="seconds"),
        ended_at=None,
        command=command,
        profile=profile,
        host=host.describe(),
        harness_version=trl_compat.__version__,
    )


def keep(state: Path, run: RunResult) -> None:
    """Keeps a run for as long as records may name it."""
    write_atomically(_path(state, run.id), run.model_dump_json())


def read(state: Path, name: str) -> RunResult | None:
    """The run of that id; None if nothing is kept of it."""
    if not ID.fullmatch(name):
        return None
    try:
        return RunResult.model_validate_json(_path(state, name).read_bytes())
    except (OSError, ValidationError):
        return None


def _path(state: Path, name: str) -> Path:
    return state / "runs" / f"{name}.json"
