"""Reports of doctor as text, Markdown, JSON, GitHub annotations and SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trl_compat import releases
from trl_compat.doctor.diagnosis import FOUND, SEVERITY_WORDS, Diagnosis, Report, Status
from trl_compat.packages import PACKAGES
from trl_compat.sources.source import Source

if TYPE_CHECKING:
    from trl_compat.report.findings import Finding, Level

FORMATS = ("text", "markdown", "json", "github", "sarif")


def render(reports: Sequence[Report], form: str) -> str:
    """The reports in one of :data:`FORMATS`, with a final newline."""
    match form:
        case "text":
            return "\n".join(line for report in reports for line in _text(report)) + "\n"
        case "markdown":
            return "\n".join(line for report in reports for line in _markdown(report)) + "\n"
        case "json":
            data = {"schema_version": 1, "reports": [_json(report) for report in reports]}
            return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        case "github":
            from trl_compat.report import workflow_commands

            return workflow_commands.render(_findings(reports))
        case "sarif":
            from trl_compat.report import sarif

            return sarif.render(_findings(reports))
    raise AssertionError(form)


def versions(source: Source) -> str:
    """The packages under test in one line."""
    said = []
    for package in PACKAGES:
        commit = source.commit(package)
        wanted = source.unpinned.get(package)
        have = source.versions.get(package) or (commit and f"commit {commit[:9]}")
        if have is None and wanted is not None:
            have = f"{wanted or 'any version'} (not pinned)"
        if have is None:
            have = "not installed" if source.absent(package) else "not named"
        said.append(f"{package} {have}")
    return ", ".join(said)


def _headline(report: Report) -> str:
    counts = {s: sum(d.status is s for d in report.counted) for s in Status}
    parts = []
    if not report.findings:
        parts.append(f"no known failure applies{_conditions(report)}")
    if counts[Status.APPLIES]:
        parts.append(f"{_failures(counts[Status.APPLIES])}{_conditions(report)}")
    if counts[Status.APPLIES_IF]:
        more = "more " if parts else ""
        parts.append(f"{_failures(counts[Status.APPLIES_IF], more)} depending on what you use")
    if counts[Status.CANNOT_TELL]:
        parts.append(f"of {counts[Status.CANNOT_TELL]} it cannot be told")
    return ", ".join(parts)


def _failures(count: int, more: str = "") -> str:
    return f"{count} {more}known failure{'s apply' if count > 1 else ' applies'}"


def _conditions(report: Report) -> str:
    if not report.named:
        return ""
    named = (f"{n}={'/'.join(map(str, values))}" for n, values in report.named.items())
    return f" ({', '.join(named)})"


def _text(report: Report) -> Iterator[str]:
    yield f"{report.source.name}: {versions(report.source)}"
    if report.nearest:
        yield f"nearest stack that was run: {report.nearest.sentence()}"
    for note in report.notes:
        yield f"note: {note}"
    yield ""
    yield _headline(report)
    for diagnosis in report.counted:
        yield ""
        yield from _text_of(diagnosis)
    for failure, reason in _ignored(report).items():
        yield ""
        yield f"ignored: {failure} {reason}"
    yield ""


def _ignored(report: Report) -> dict[str, str]:
    """The failures that would count if the project did not accept them."""
    found = (d.record.id for d in report.diagnoses)
    return {i: report.ignored[i] for i in found if i in report.ignored}


def _text_of(diagnosis: Diagnosis) -> Iterator[str]:
    record = diagnosis.record
    yield f"{diagnosis.status.value}: {record.id} ({SEVERITY_WORDS[diagnosis.severity]})"
    yield f"  {record.title}"
    if diagnosis.status is Status.CANNOT_TELL:
        yield f"  {diagnosis.status.sentence}"
    for clause in diagnosis.when:
        yield f"  if {clause}"
    if diagnosis.status not in FOUND:
        return
    if diagnosis.sees:
        yield f"  you see: {diagnosis.sees}"
    yield f"  {diagnosis.seen}"
    for number, action in enumerate(diagnosis.actions):
        yield f"  {'or: ' if number else 'fix: '}{action.text}"
        yield from (f"      {line}" for line in action.code.rstrip().splitlines())
    if diagnosis.status is Status.APPLIES:
        yield from (f"  not a fix: {why}" for why in diagnosis.not_fixes)


def _markdown(report: Report) -> Iterator[str]:
    yield f"### {_inline(report.source.name)}: {_headline(report)}"
    yield ""
    yield _inline(versions(report.source)) + "."
    if report.nearest:
        yield f"Nearest stack that was run: {_inline(report.nearest.sentence())}."
    for note in report.notes:
        yield f"\n> {_inline(note)}"
    yield ""
    if report.counted:
        yield "| failure | how bad | applies | what to do |"
        yield "|---|---|---|---|"
    for diagnosis in report.counted:
        record = diagnosis.record
        link = f"[{record.id}]({record.references[0]})" if record.references else record.id
        when = "; or ".join(f"if {clause}" for clause in diagnosis.when) or "yes"
        if diagnosis.status not in FOUND:
            when = f"{diagnosis.status.value}: {when}"
        todo = "<br>".join(_inline(action.text) for action in diagnosis.actions) or "—"
        bad = SEVERITY_WORDS[diagnosis.severity]
        yield f"| {link}: {_inline(record.title)} | {bad} | {_inline(when)} | {todo} |"
    yield ""
    for failure, reason in _ignored(report).items():
        yield f"Ignored: {failure} {_inline(reason)}.\n"


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _json(report: Report) -> dict[str, Any]:
    source = report.source
    return {
        "source": {
            "name": source.name,
            "kind": source.kind,
            "python": source.python,
            "versions": {p: source.versions[p] for p in PACKAGES if p in source.versions},
            "commits": {p: source.commits[p] for p in PACKAGES if p in source.commits},
            "unpinned": {p: source.unpinned[p] for p in PACKAGES if p in source.unpinned},
        },
        "conditions": {name: list(values) for name, values in report.named.items()},
        "nearest_run": report.nearest
        and {
            "stack": report.nearest.run.name,
            "date": report.nearest.run.run,
            "differs": list(report.nearest.differs),
        },
        "releases_as_of": releases.known().as_of,
        "notes": list(report.notes),
        "diagnoses": [
            {
                "id": d.record.id,
                "title": d.record.title,
                "severity": d.severity,
                "status": d.status.name.lower().replace("_", "-"),
                "when": list(d.when),
                "sees": d.sees,
                "seen": d.seen,
                "actions": [{"text": a.text, "code": a.code} for a in d.actions],
                "ignored": report.ignored.get(d.record.id),
                "not_fixes": list(d.not_fixes),
                "references": list(d.record.references),
            }
            for d in report.diagnoses
        ],
    }


def _message(diagnosis: Diagnosis) -> str:
    """One finding in sentences, for annotations and code scanning."""
    parts = [f"{diagnosis.record.id}: {diagnosis.record.summary}"]
    if diagnosis.when:
        parts.append(f"Applies if {'; or if '.join(diagnosis.when)}.")
    parts.append(f"{diagnosis.seen[0].upper()}{diagnosis.seen[1:]}.")
    parts += [f"{'Or' if n else 'Fix'}: {a.text}" for n, a in enumerate(diagnosis.actions)]
    return "\n".join(parts)


def _level(diagnosis: Diagnosis) -> Level:
    if diagnosis.status is Status.APPLIES:
        return "warning" if diagnosis.severity == "slow" else "error"
    return "warning" if diagnosis.status is Status.APPLIES_IF else "note"


def _place(source: Source) -> tuple[str, int | None]:
    """The file, relative to here where it can be, and the line that decides TRL's version."""
    if source.path is None:
        return "environment", None
    path = source.path.resolve()
    here = Path.cwd()
    name = str(path.relative_to(here)) if path.is_relative_to(here) else str(source.path)
    pattern = re.compile(r"""^\s*(?:name\s*=\s*["']trl["']|trl\b(?![-_.]))""", re.I)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return name, next((n for n, line in enumerate(lines, 1) if pattern.match(line)), None)


def _findings(reports: Sequence[Report]) -> list[Finding]:
    """What is found in the shape that reports share."""
    from trl_compat.report.findings import Finding

    findings = []
    for report in reports:
        name, line = _place(report.source)
        for d in report.counted:
            references = d.record.references
            findings.append(
                Finding(
                    rule_id=d.record.id,
                    title=d.record.title,
                    message=_message(d),
                    level=_level(d),
                    help_uri=references[0] if references else "",
                    location=f"{name}:{line}" if line else name,
                )
            )
    return findings
