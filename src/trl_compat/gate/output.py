"""A gate's report in the requested format, scrubbed like every report."""

from __future__ import annotations

import json
from pathlib import Path

from trl_compat import results
from trl_compat.errors import BadInput
from trl_compat.gate import gate_findings, markdown, text
from trl_compat.gate.report import GateReport
from trl_compat.report import sarif, workflow_commands


def render(report: GateReport, format_: str) -> str:
    """The report in a format."""
    match format_:
        case "json":
            said = report.model_dump_json(indent=1) + "\n"
        case "markdown":
            said = markdown.render(report)
        case "sarif":
            said = sarif.render(gate_findings.of_gate(report))
        case "github":
            said = workflow_commands.render(gate_findings.of_gate(report))
        case _:
            return text.render(report)  # for who asked; the others may be published
    return _scrubbed(said, report.command)


def _scrubbed(text: str, command: str) -> str:
    """The text without what is private; the line that asks again stays one that can be pasted."""
    if not command:
        return results.scrub(text)
    told = json.dumps(command, ensure_ascii=False)[1:-1]  # as JSON has it; mostly as it is
    return results.scrub_command(told).join(map(results.scrub, text.split(told)))


def summarise(report: GateReport, path: Path, *, append: bool) -> None:
    """Writes the Markdown to a file, or behind what is there.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(_scrubbed(markdown.render(report), report.command))
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror})") from None
