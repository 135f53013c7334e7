"""CTRF JSON (Common Test Report Format): one test per cell, for the tools that read it."""

from __future__ import annotations

import datetime
import json
from typing import Any

from trl_compat.report import provenance, tables
from trl_compat.report.junit import is_error, is_skipped, name_of
from trl_compat.results import CellResult, Results

SPECIFICATION = "0.0.0"


def render(document: Results) -> str:
    """The report as CTRF."""
    tests = [_test(document, cell) for cell in document.cells]
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
            "environment": _environment(document),
        },
    }
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def _environment(document: Results) -> dict[str, Any]:
    """What all cells have in common; where that is not one machine, each test says its own."""
    systems = {run.host.os for run in document.all_runs}
    return {"osPlatform": systems.pop()} if len(systems) == 1 else {}


def _test(document: Results, cell: CellResult) -> dict[str, Any]:
    run = document.run_of(cell)
    test: dict[str, Any] = {
        "name": name_of(cell),
        "status": _status(cell),
        "duration": round(cell.seconds * 1000),
        "suite": [cell.stack, cell.failure],
        "rawStatus": str(cell.outcome),
        "filePath": f"advisories/{cell.failure}.yaml",
        "extra": {
            "cell": cell.id,
            "expected": tables.expected(cell),
            "command": cell.command,
            "host": provenance.machine(run.host) if run else "not known",
        },
    }
    if cell.reason:
        test["message"] = cell.reason
    if cell.traceback and not cell.agrees:
        test["trace"] = cell.traceback
    return test


def _status(cell: CellResult) -> str:
    """A cell that is as its advisory says has passed, be the outcome a failure or not."""
    if not cell.agrees:
        return "other" if is_error(cell) else "failed"
    return "skipped" if is_skipped(cell) else "passed"


def _milliseconds(moment: str) -> int:
    return round(datetime.datetime.fromisoformat(moment).timestamp() * 1000)
