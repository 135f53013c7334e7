"""Findings as workflow commands of GitHub Actions, which appear beside the changed lines."""

from __future__ import annotations

from collections.abc import Sequence

from trl_compat.report.finding import Finding
from trl_compat.text import uri, workflow

WORDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(findings: Sequence[Finding], notices: Sequence[str] = ()) -> str:
    """One command a line; nothing where there is nothing to say.

    A notice is about no file.
    """
    said = [_command(finding) for finding in findings]
    said += [f"::notice title=trl-compat::{workflow.message(notice)}" for notice in notices]
    return "".join(f"{command}\n" for command in said)


def _command(finding: Finding) -> str:
    line = str(finding.line or 1)
    properties = {"file": uri.relative(finding.location), "line": line, "title": finding.title}
    said = ",".join(f"{name}={workflow.value(text)}" for name, text in properties.items())
    return f"::{WORDS[finding.level]} {said}::{workflow.message(finding.message)}"
