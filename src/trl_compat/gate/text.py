"""A gate's report for a terminal or a log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trl_compat.gate import wording
from trl_compat.gate.judgement import ChangeVerdict
from trl_compat.gate.report import FailureReport, GateReport, SideReport
from trl_compat.text import terminal

WIDTH = 110


def render(report: GateReport) -> str:
    """The report as plain text; the answer stands last, where one looks first."""
    return "".join(f"{terminal.lines(line)}\n" for line in _lines(report))


def _lines(report: GateReport) -> Iterator[str]:
    yield _side("reference", report.reference)
    yield _side("candidate", report.candidate)
    changed = ", ".join(f"{name} {was} → {now}" for name, was, now in wording.changes(report))
    if changed and not report.unresolvable:
        yield from _wrapped("changes    ", changed)
    yield ""
    for failure in report.failures:
        yield from _failure(failure, report)
    for note in wording.notes(report):
        yield from _wrapped("note: ", note)
    yield from _wrapped("", f"{wording.what_ran(report)}.")
    if gains := wording.gains(report):
        yield from _wrapped("", f"{gains}.")
    yield report.headline
    if report.unresolvable:
        yield from _wrapped("   ", report.unresolvable)


def _side(name: str, side: SideReport) -> str:
    called = side.given if side.stack in ("", side.given) else f"{side.given} ({side.stack})"
    return f"{name}  {called}"


def _failure(failure: FailureReport, report: GateReport) -> Iterator[str]:
    severity = failure.severity.replace("-", " ")
    said = "" if failure.verdict is ChangeVerdict.OK else f": {failure.title} ({severity})"
    yield f"{wording.verdict(failure)} · {failure.failure}{said}"
    for group in wording.groups(failure):
        if group.verdict is not ChangeVerdict.OK:
            also = "" if group.verdict is failure.verdict else f" ({group.verdict})"
            yield from _wrapped("     ", f"{group.where}{also}: {group.why}")
    for sentence in wording.todo(failure, report):
        yield from _wrapped("     ", sentence)
    if failure.ignored is not None:
        yield from _wrapped("     ", f"ignored: {failure.ignored.reason}")
    snippet = next((r.snippet for r in failure.remedies if r.snippet and r.proven is not False), "")
    if snippet and failure.verdict in (ChangeVerdict.REGRESSION, ChangeVerdict.STILL_FAILING):
        yield textwrap.indent(snippet.rstrip(), " " * 9)


def _wrapped(indent: str, text: str) -> Iterator[str]:
    more = " " * (len(indent) + 2)
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=more,
        break_long_words=False,
        break_on_hyphens=False,
    )
