"""Workflow commands of GitHub Actions from findings: they show beside the lines of a change."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trl_compat.report.findings import Finding

WORDS = {"error": "error", "warning": "warning", "note": "notice"}
PLACE = re.compile(r"(?P<path>.+?)(?::(?P<line>[1-9]\d*))?")


def render(findings: Sequence[Finding]) -> str:
    """One command a line; nothing where nothing was found."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    place = PLACE.fullmatch(finding.location)
    assert place is not None, "a finding is about some file"
    properties = {"file": place["path"], "line": place["line"] or "1", "title": finding.title}
    said = ",".join(f"{name}={_escaped(value, True)}" for name, value in properties.items())
    return f"::{WORDS[finding.level]} {said}::{_escaped(finding.message)}"


def _escaped(text: str, of_a_property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if of_a_property else text
