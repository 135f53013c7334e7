"""A gate's report as findings, for code scanning and annotations of a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trl_compat.gate import wording
from trl_compat.gate.judgement import ChangeVerdict
from trl_compat.gate.report import FailureReport, GateReport
from trl_compat.report.finding import Finding, Level

NOWHERE = "pyproject.toml"
"""Where a finding is shown that is about no file: services show none without a place."""


def of_gate(report: GateReport) -> list[Finding]:
    """What is to be said, what stops the upgrade first; nothing about what is fine."""
    return list(_findings(report))


def _findings(report: GateReport) -> Iterator[Finding]:
    candidate = report.candidate.given
    place = candidate if Path(candidate).is_file() else NOWHERE
    if report.unresolvable:
        yield _finding("no-such-candidate", report.headline, report.unresolvable, "error", place)
    for failure in report.failures:
        if failure.verdict is not ChangeVerdict.OK:
            url = failure.reference_url
            title, message = f"{failure.failure}: {failure.title}", _message(failure, report)
            yield _finding(failure.failure, title, message, _level(failure), place, url)
    for ignore in report.expired:
        message = f"{ignore.failure} was accepted until {ignore.expires}: {ignore.reason}"
        yield _finding("expired-ignore", "An ignore has expired", message, "error", NOWHERE)


def _finding(
    rule: str, title: str, message: str, level: Level, place: str, url: str = ""
) -> Finding:
    return Finding(
        rule_id=rule, title=title, message=message, level=level, help_uri=url, location=place
    )


def _message(failure: FailureReport, report: GateReport) -> str:
    lines = [f"{wording.verdict(failure)}: {failure.why}."]
    return "\n".join([*lines, *wording.todo(failure, report)])


def _level(failure: FailureReport) -> Level:
    if failure.stops:
        return "error"
    return "note" if failure.verdict is ChangeVerdict.FIXED else "warning"
