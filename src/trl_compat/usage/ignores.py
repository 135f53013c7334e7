"""Failures that a project ignores until a date: ``[tool.trl-compat]`` in its pyproject.toml.

    [tool.trl-compat]
    ignore = [
        {failure = "ppo-zero3-save", reason = "we save through the engine", expires = 2027-01-31},
    ]

An ignored failure does not block.  Every entry has a reason and a date on which it expires; after
that date the gate fails until the entry is renewed or removed.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, ValidationError

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.files.models import FrozenModel
from trl_compat.text.nearest import unknown_name


class Ignore(FrozenModel):
    """A failure that is ignored until a date, inclusive."""

    failure: str
    reason: str = Field(min_length=10)
    expires: datetime.date

    def expired(self, today: datetime.date) -> bool:
        """Whether the ignore no longer holds."""
        return today > self.expires


class Settings(FrozenModel):
    """The table ``[tool.trl-compat]``."""

    ignore: tuple[Ignore, ...] = ()


def read(path: Path, failures: Iterable[str]) -> tuple[Ignore, ...]:
    """The ignores of a pyproject.toml; none where there is no such file or table.

    Raises:
        BadInput: no TOML, an ignore without reason or day, a failure that does not exist.
    """
    try:
        document = reading.toml_of(path)
    except BadInput:
        if not path.exists():
            return ()
        raise
    tool = reading.mapping(document.get("tool", {}), f"{path}: tool")
    table = reading.mapping(tool.get("trl-compat", {}), f"{path}: tool.trl-compat")
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part)[:100] for part in first["loc"][:4])
        raise BadInput(f"{path}: tool.trl-compat.{key}: {first['msg'][:200]}") from None
    known = tuple(failures)
    for number, ignore in enumerate(settings.ignore):
        if ignore.failure not in known:
            said = unknown_name("failure", ignore.failure[:100], known)
            raise BadInput(f"{path}: tool.trl-compat.ignore.{number}: {said}")
    return settings.ignore
