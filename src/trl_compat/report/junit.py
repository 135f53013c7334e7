"""junit.xml: one test case per cell; a deviation is a failure, a cell that was not run is skipped.

CI systems show the suite, the class and the case's name, and a failure's message first: these
contain stack, failure and the difference, so that no id has to be decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from trl_compat.cells.outcome import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.report import logs, provenance, tables
from trl_compat.results import CellResult, Results

# Nothing is said for or against these; the rest of what was not run is an error, no failure.
NOT_RUN = (Outcome.UNAVAILABLE, Outcome.NOT_APPLICABLE)
NOT_IN_XML = re.compile(r"[^\t\n -\ud7ff\ue000-\U0010ffff]")


def render(document: Results) -> str:
    """The report as JUnit XML (the common xunit2 subset)."""
    root = ET.Element("testsuites", {"name": "trl-compat", **_counts(document.cells)})
    by_stack: dict[str, list[CellResult]] = {}
    for cell in document.cells:
        by_stack.setdefault(cell.stack, []).append(cell)
    for stack in tables.stacks_of(document, document.cells):
        cells = by_stack[stack]
        started = min(cell.started_at for cell in cells)
        about = {"name": stack, "timestamp": started, **_counts(cells)}
        suite = ET.SubElement(root, "testsuite", about)
        properties = ET.SubElement(suite, "properties")
        for package in (*SHOWN_PACKAGES, "python"):
            value = getattr(document.stacks[stack], package)
            ET.SubElement(properties, "property", name=package, value=value)
        for name, value in _runs(document, cells):
            ET.SubElement(properties, "property", name=name, value=_clean(value))
        suite.extend(_case(cell) for cell in cells)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def name_of(cell: CellResult) -> str:
    """A cell inside its stack and failure, for people."""
    parts = [cell.variant, cell.model, f"{cell.world_size} ranks {cell.backend}"]
    if cell.fix:
        parts.append(f"with {'wrong fix ' if cell.wrong_fix else ''}{cell.fix}")
    return ", ".join(parts)


def _runs(document: Results, cells: Sequence[CellResult]) -> Iterator[tuple[str, str]]:
    """How and where the cells of a stack were run, each run once."""
    used = {run.id for cell in cells if (run := document.run_of(cell))}
    for run in document.all_runs:
        if run.id in used:
            yield "run", f"{run.command} ({run.started_at}, trl-compat {run.harness_version})"
            yield "host", provenance.machine(run.host)


def _counts(cells: Sequence[CellResult]) -> dict[str, str]:
    broken = sum(is_error(cell) for cell in cells)
    return {
        "tests": str(len(cells)),
        "failures": str(sum(not cell.agrees for cell in cells) - broken),
        "errors": str(broken),
        "skipped": str(sum(is_skipped(cell) for cell in cells)),
        "time": f"{sum(cell.seconds for cell in cells):.2f}",
    }


def is_skipped(cell: CellResult) -> bool:
    """Whether a cell is neither good nor bad: nothing ran, or nothing was expected of it."""
    if cell.expected is None and cell.outcome is not Outcome.PASS:
        return True
    return cell.agrees and cell.outcome in NOT_RUN


def is_error(cell: CellResult) -> bool:
    """Whether a cell could not be run and should have been, which is no failure of the stack."""
    return not cell.agrees and not cell.outcome.ran


def _case(cell: CellResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=f"{cell.stack}.{cell.failure}",
        name=name_of(cell),
        time=f"{cell.seconds:.2f}",
    )
    said = f"{cell.outcome} (expected {tables.expected(cell)}). {cell.reason}".strip()
    if not cell.agrees:
        tag = "error" if is_error(cell) else "failure"
        failure = ET.SubElement(case, tag, message=_clean(said), type=str(cell.outcome))
        signature = cell.signature
        lines = [
            said,
            f"{signature.exception}: {signature.message} ({signature.where})" if signature else "",
            cell.traceback,
            f"run again: {cell.command}",
            f"log: {logs.place(cell)}" if cell.log else "",
        ]
        failure.text = _clean("\n".join(line for line in lines if line))
    elif is_skipped(cell):
        ET.SubElement(case, "skipped", message=_clean(said))
    else:
        ET.SubElement(case, "system-out").text = _clean(f"{said}\nrun again: {cell.command}")
    return case


def _clean(text: str) -> str:
    """The text without characters that XML 1.0 cannot hold."""
    return NOT_IN_XML.sub("", text)
