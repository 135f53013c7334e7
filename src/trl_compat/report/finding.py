"""Findings: the problems that a command reports, in the form that several formats share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        rule_id: what kind of thing it is; the id of an advisory where there is one.
        title: of the rule, the same for every finding of it.
        message: what was found here and what to do, in sentences.
        help_uri: where to read about the rule; empty if nowhere.
        location: the file that it is about, relative to the repository.
        line: of that file, if known.
    """

    rule_id: str
    title: str
    message: str
    level: Level
    help_uri: str
    location: str
    line: int | None = None
