"""A gate's report as GitHub Markdown, for a pull request comment or a job summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trl_compat.gate import wording
from trl_compat.gate.judgement import ChangeVerdict
from trl_compat.gate.report import FailureReport, GateReport, Seen
from trl_compat.text.markdown import block, code, inline, link, paragraph

MARK = "<!-- trl-compat gate -->"
"""Stands first, so that a bot finds its own comment and writes a new one over it."""


def render(report: GateReport) -> str:
    """The report; the answer first, what needs no reading folded away."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: GateReport) -> Iterator[str]:
    yield MARK
    yield f"### {inline(report.headline)}"
    yield ""
    yield f"{code(report.reference.given)} → {code(report.candidate.given)}"
    if report.unresolvable:
        yield ""
        yield f"> {paragraph(report.unresolvable)}"
    if gains := wording.gains(report):
        yield ""
        yield f"{inline(gains[0].upper() + gains[1:])}."
    changed = [] if report.unresolvable else wording.changes(report)
    if changed:
        yield ""
        rows = [tuple(map(inline, row)) for row in changed]
        yield from _table(("package", "reference", "candidate"), rows)
    loud = [f for f in report.failures if f.verdict is not ChangeVerdict.OK or f.ignored]
    if loud:
        yield ""
        told = [(inline(wording.verdict(f)), _name(f), *_told(f, report)) for f in loud]
        yield from _table(("verdict", "failure", "what happens", "what to do"), told)
    for failure in loud:
        yield from _snippet(failure)
    if quiet := [f for f in report.failures if f not in loud]:
        yield ""
        yield f"{ChangeVerdict.OK.mark} ok: {', '.join(_name(f) for f in quiet)}"
    if notes := list(wording.notes(report)):
        yield ""
        yield from (f"- {paragraph(note)}" for note in notes)
    yield from _cells(report)
    yield ""
    yield f"<sub>{inline(wording.what_ran(report))}; trl-compat {report.harness_version}</sub>"


def _told(failure: FailureReport, report: GateReport) -> tuple[str, str]:
    happens = "<br>".join(
        f"{code(group.where)}{'' if group.verdict is failure.verdict else f' ({group.verdict})'}: "
        f"{inline(group.why)}"
        for group in wording.groups(failure)
        if group.verdict is not ChangeVerdict.OK
    )
    sentences = [inline(sentence) for sentence in wording.todo(failure, report)]
    if failure.ignored is not None:
        sentences.append(f"ignored: {inline(failure.ignored.reason)}")
    return happens, "<br>".join(sentences) or failure.verdict.action


def _snippet(failure: FailureReport) -> Iterator[str]:
    if failure.verdict not in (ChangeVerdict.REGRESSION, ChangeVerdict.STILL_FAILING):
        return
    help_ = next((r for r in failure.remedies if r.snippet and r.proven is not False), None)
    if help_ is None:
        return
    yield ""
    opened = " open" if failure.stops else ""
    yield f"<details{opened}><summary>The fix for {inline(failure.failure)}</summary>"
    yield ""
    yield from block(help_.snippet, "python")
    if help_.cost:
        yield ""
        yield f"Cost: {inline(help_.cost)}"
    yield ""
    yield "</details>"


def _cells(report: GateReport) -> Iterator[str]:
    rows = [
        tuple(map(inline, (f.failure, p.variant, p.model, *map(_seen, p.seen), str(p.verdict))))
        for f in report.failures
        for p in f.places
    ]
    if not rows:
        return
    yield ""
    yield f"<details><summary>Every cell ({len(rows)})</summary>"
    yield ""
    yield from _table(("failure", "variant", "model", "reference", "candidate", ""), rows)
    yield ""
    yield "</details>"


def _seen(seen: Seen | None) -> str:
    return f"{seen.outcome.mark} {seen.outcome}" if seen else "not run"


def _name(failure: FailureReport) -> str:
    return link(failure.failure, failure.reference_url)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(row) + " |"
