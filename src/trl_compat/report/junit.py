"""junit.xml: one test case per cell; a deviation is a failure, what was not run is skipped."""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree as ET

from trl_compat.outcomes import Outcome
from trl_compat.results import CellResult, Results

NOT_RUN = (Outcome.UNAVAILABLE, Outcome.NOT_APPLICABLE)


def render(document: Results) -> str:
    """The report as JUnit XML (the common xunit2 subset)."""
    root = ET.Element("testsuites", name="trl-compat")
    for stack, group in groupby(document.cells, key=lambda cell: cell.stack):
        cells = list(group)
        failed = sum(not cell.agrees for cell in cells)
        skipped = sum(cell.agrees and cell.outcome in NOT_RUN for cell in cells)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=stack,
            tests=str(len(cells)),
            failures=str(failed),
            errors="0",
            skipped=str(skipped),
            time=f"{sum(cell.seconds for cell in cells):.2f}",
            timestamp=document.generated_at,
        )
        for cell in cells:
            suite.append(_case(cell))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(cell: CellResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=f"{cell.stack}.{cell.failure}",
        name=cell.id,
        time=f"{cell.seconds:.2f}",
    )
    said = f"{cell.outcome} (expected {cell.expected}). {cell.reason}".strip()
    if not cell.agrees:
        failure = ET.SubElement(case, "failure", message=_clean(said), type=str(cell.outcome))
        failure.text = _clean(f"{said}\nrun again: {cell.command}")
    elif cell.outcome in NOT_RUN:
        ET.SubElement(case, "skipped", message=_clean(said))
    else:
        ET.SubElement(case, "system-out").text = _clean(said)
    return case


def _clean(text: str) -> str:
    """The text without characters that XML 1.0 cannot hold."""
    return "".join(c for c in text if c in "\t\n" or " " <= c <= "\ud7ff" or c >= "\ue000")
