"""The kept answer that there is no such stack, so that it is not asked for again.

A stack's day pins what the index has, so a resolver's answer about a day that is past holds for
good: once all files of that day have had a week to arrive.  Any other answer holds for a day: a
build may fail for reasons of the machine.
"""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trl_compat.stacks.environments import BuildRefused, NoSolution, Unresolvable, cache

SETTLED = datetime.timedelta(days=7)
SHORT_LIFE = datetime.timedelta(days=1)


class Refusal(BaseModel):
    """What the resolver said, and until when that counts; for good without an end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str
    until: datetime.datetime | None

    @property
    def sha256(self) -> str:
        """The digest of the reason, in place of that of a lock."""
        return hashlib.sha256(f"refused\n{self.reason}".encode()).hexdigest()


class _Kept(BaseModel):
    """A refusal in its file, with a digest that tells a damaged one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    refusal: Refusal
    sha256: str


def keep(lock: Path, error: Unresolvable, as_of: datetime.date) -> None:
    """Keeps an answer beside the place of the lock; what the stack itself forbids is not kept."""
    if isinstance(error, BuildRefused):
        return
    now = datetime.datetime.now(datetime.UTC)
    settled = isinstance(error, NoSolution) and now.date() - as_of > SETTLED
    refusal = Refusal(reason=str(error), until=None if settled else now + SHORT_LIFE)
    kept = _Kept(refusal=refusal, sha256=_digest(refusal))
    cache.write(_path(lock), kept.model_dump_json())


def kept(lock: Path) -> Refusal | None:
    """The answer that is kept and still counts."""
    try:
        found = _Kept.model_validate_json(_path(lock).read_bytes())
    except (OSError, ValidationError):
        return None
    refusal = found.refusal
    if found.sha256 != _digest(refusal):
        return None
    over = refusal.until is not None and refusal.until <= datetime.datetime.now(datetime.UTC)
    return None if over else refusal


def _digest(refusal: Refusal) -> str:
    return hashlib.sha256(refusal.model_dump_json().encode()).hexdigest()


def _path(lock: Path) -> Path:
    return lock.with_suffix(".refused.json")
