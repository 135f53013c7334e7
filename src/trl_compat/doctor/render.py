"""Reports of doctor as text, Markdown, JSON, GitHub annotations and SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trl_compat.doctor.diagnosis import FOUND, SEVERITY_WORDS, Diagnosis, Report, Status
from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.packages import PACKAGES
from trl_compat.shipped import releases
from trl_compat.stacks.sources.source import Source, shown
from trl_compat.text import markdown, terminal

if TYPE_CHECKING:
    from trl_compat.report.finding import Finding, Level

OF_TRL = re.compile(r"""\s*(?:name\s*=\s*["']trl["']|trl\b(?![-_.]))""", re.I)
FORMATS = ("text", "markdown", "json", "github", "sarif")


def render(reports: Sequence[Report], form: str, refused: Sequence[str] = ()) -> str:
    """The reports in one of :data:`FORMATS`, with a final newline.

    ``refused`` are sentences about files of which there is no report.
    """
    match form:
        case "text":
            return "".join(f"{terminal.line(line)}\n" for r in reports for line in _text(r))
        case "markdown":
            lines = [line for report in reports for line in _markdown(report)]
            lines += [f"> {markdown.paragraph(sentence)}\n" for sentence in refused]
            return "".join(f"{line}\n" for line in lines)
        case "json":
            data = {
                "schema_version": 1,
                "reports": [_json(report) for report in reports],
                "refused": list(refused),
            }
            return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        case "github":
            from trl_compat.report import workflow_commands

            return workflow_commands.render(_findings(reports), [*_notices(reports), *refused])
        case "sarif":
            from trl_compat.report import sarif

            return sarif.render(_findings(reports), [*_notices(reports), *refused])
    raise AssertionError(form)


def _notices(reports: Sequence[Report]) -> Iterator[str]:
    """What the formats say that have a place for findings only: how much an answer is worth."""
    for report in reports:
        yield f"{report.source.name}: {headline(report)}"


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
            have = "not installed" if source.absent(package) else "not specified"
        said.append(f"{package} {have}")
    return ", ".join(said)


def headline(report: Report) -> str:
    """How many of the failures that are known of what was asked apply; never just "nothing"."""
    asked, counts = report.asked, {s: sum(d.status is s for d in report.counted) for s in Status}
    of = f" that can concern {asked.what}" if asked.what else ""
    if not report.counted and asked.void:
        besides = f"0 of {asked.known} known failures that can concern it apply"
        known = f" ({besides})" if asked.known else ""
        return f"{asked.void}: this report says nothing about it{known}"
    total = f"{asked.known} known failure{'' if asked.known == 1 else 's'}{of}"
    parts = [f"{counts[Status.APPLIES]} of {total} {_verb(counts[Status.APPLIES])}"]
    if counts[Status.APPLIES_IF]:
        parts.append(f"{counts[Status.APPLIES_IF]} more depend on unspecified conditions")
    if counts[Status.HIDDEN]:
        parts.append(f"{counts[Status.HIDDEN]} masked by another failure")
    if counts[Status.CANNOT_TELL]:
        parts.append(f"{counts[Status.CANNOT_TELL]} cannot be determined")
    if ignored := len(_ignored(report)):
        parts.append(f"{ignored} ignored")
    return ", ".join(parts) + (f"; {asked.void}" if asked.void else "")


def _verb(count: int) -> str:
    return "applies" if count == 1 else "apply"


def _text(report: Report) -> Iterator[str]:
    yield f"{report.source.name}: {versions(report.source)}"
    if report.nearest:
        yield f"nearest tested stack: {report.nearest.sentence()}"
    for note in report.notes:
        yield f"note: {note}"
    yield ""
    yield headline(report)
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
    for use in diagnosis.uses:
        yield f"  with {use}"
    for clause in diagnosis.when:
        yield f"  if {clause}"
    if diagnosis.status not in FOUND:
        return
    if diagnosis.sees:
        yield f"  symptom: {diagnosis.sees}"
    yield f"  {diagnosis.seen}"
    for number, action in enumerate(diagnosis.actions):
        yield f"  {'or: ' if number else 'fix: '}{action.text}"
        yield from (f"      {line}" for line in action.code.rstrip().splitlines())
    if diagnosis.status is Status.APPLIES:
        yield from (f"  not a fix: {why}" for why in diagnosis.not_fixes)


def _markdown(report: Report) -> Iterator[str]:
    yield f"### {markdown.code(report.source.name)}: {markdown.inline(headline(report))}"
    yield ""
    yield markdown.inline(versions(report.source)) + "."
    if report.nearest:
        yield f"Nearest tested stack: {markdown.inline(report.nearest.sentence())}."
    for note in report.notes:
        yield f"\n> {markdown.paragraph(note)}"
    yield ""
    if report.counted:
        yield "| failure | severity | applies | what to do |"
        yield "|---|---|---|---|"
    for diagnosis in report.counted:
        record = diagnosis.record
        name = markdown.link(record.id, next(iter(record.references), ""))
        said = [f"with {use}" for use in diagnosis.uses] + [f"if {c}" for c in diagnosis.when]
        when = "; or ".join(said) or "yes"
        if diagnosis.status not in FOUND:
            when = f"{diagnosis.status.value}: {when}"
        todo = "<br>".join(markdown.inline(action.text) for action in diagnosis.actions) or "—"
        bad = SEVERITY_WORDS[diagnosis.severity]
        title = markdown.inline(record.title)
        yield f"| {name}: {title} | {bad} | {markdown.inline(when)} | {todo} |"
    yield ""
    for failure, reason in _ignored(report).items():
        yield f"Ignored: {markdown.inline(failure)} {markdown.inline(reason)}.\n"


def _json(report: Report) -> dict[str, Any]:
    source = report.source
    return {
        "source": {
            "name": source.name,
            "kind": source.kind,
            "python": source.python,
            "versions": {p: source.versions[p] for p in PACKAGES if p in source.versions},
            "commits": {p: shown(source.commits[p]) for p in PACKAGES if p in source.commits},
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
        "headline": headline(report),
        "known_failures": report.asked.known,
        "never_run": list(report.asked.unseen),
        "notes": list(report.notes),
        "diagnoses": [
            {
                "id": d.record.id,
                "title": d.record.title,
                "severity": d.severity,
                "status": d.status.name.lower().replace("_", "-"),
                "when": list(d.when),
                "uses": list(d.uses),
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
    if diagnosis.uses:
        parts.append(f"Concerns {' and '.join(diagnosis.uses)}.")
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
    """The file, and the line that decides TRL's version."""
    if source.path is None:
        return "environment", None
    try:
        lines = reading.text_of(source.path).splitlines()
    except BadInput:  # gone since it was read
        lines = []
    found = (number for number, line in enumerate(lines, 1) if OF_TRL.match(line))
    return str(source.path), next(found, None)


def _findings(reports: Sequence[Report]) -> list[Finding]:
    """What is found in the shape that reports share."""
    from trl_compat.report.finding import Finding

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
                    location=name,
                    line=line,
                )
            )
    return findings
