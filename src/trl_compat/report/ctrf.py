"""CTRF JSON (Common Test Report Format): one test per cell, for the tools that read it."""

from __future__ import annotations

import datetime
import json
from typing import Any

from trl_compat.outcomes import Outcome
from trl_compat.report.junit import NOT_RUN, name_of
from trl_compat.results import CellResult, Results

SPECIFICATION = "0.0.0"


def render(document: Results) -> str:
    """The report as CTRF."""
    tests = [_test(cell) for cell in document.cells]
    starts = [_milliseconds(cell.started_at) for cell in document.cells]
    ends = [s + round(c.seconds * 1000) for s, c in zip(starts, document.cells, strict=True)]
    counted = {
        status: sum(test["status"] == status for test in tests)
        for status in ("passed", "failed", "pending", "skipped", "other")
    }
    summary = {"tests": len(tests), **counted}
    summary |= {"start": min(starts, default=0), "stop": max(ends, default=0)}
    report = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "generatedBy": "trl-compat",
        "timestamp": document.generated_at,
        "results": {
            "tool": {"name": "trl-compat", "version": document.harness_version},
            "summary": summary,
            "tests": tests,
            "environment": {"osPlatform": document.host.os},
        },
    }
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def _test(cell: CellResult) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": name_of(cell),
        "status": _status(cell),
        "duration": round(cell.seconds * 1000),
        "suite": [cell.stack, cell.failure],
        "rawStatus": str(cell.outcome),
        "filePath": f"advisories/{cell.failure}.yaml",
        "extra": {"cell": cell.id, "expected": str(cell.expected), "command": cell.command},
    }
    if cell.reason:
        test["message"] = cell.reason
    if cell.traceback and not cell.agrees:
        test["trace"] = cell.traceback
    return test


def _status(cell: CellResult) -> str:
    """A cell that is as its advisory says has passed, be the outcome a failure or not."""
    if not cell.agrees:
        return "other" if cell.outcome is Outcome.HARNESS_ERROR else "failed"
    return "skipped" if cell.outcome in NOT_RUN else "passed"


def _milliseconds(moment: str) -> int:
    return round(datetime.datetime.fromisoformat(moment).timestamp() * 1000)
