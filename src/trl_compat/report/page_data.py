"""The data that compatibility.html embeds for its script: a compact row per cell, and shared data.

The page shows the first table and the advisories without it.  The script builds the evidence of a
cell when a reader opens it, so a page of a thousand cells is no larger than its data.
"""

from __future__ import annotations

import re
from typing import Any

from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import standalone_name
from trl_compat.cells.outcomes import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.report import provenance, stand_ins, tables, wording
from trl_compat.results import CellResult, Results

COLUMNS = (
    "id",
    "stack",
    "failure",
    "variant",
    "model",
    "ranks",
    "backend",
    "fix",
    "wrongFix",
    "control",
    "outcome",
    "expected",
    "agrees",
    "reason",
    "maskedBy",
    "signature",
    "traceback",
    "checks",
    "standIns",
    "evidence",
    "startedAt",
    "seconds",
    "launch",
    "attempts",
    "log",
    "command",
    "run",
)
LOG = re.compile(r"evidence/[\w.+-]+\.log")
KINDS = {"✅": "pass", "❌": "fail", "⚠️": "look", "—": "absent"}
SIGNS = {"pass": "✓", "fail": "✗", "look": "!", "absent": "–", "unrun": "·"}


def kind(outcome: Outcome) -> str:
    """``pass``, ``fail``, ``look`` or ``absent``: the four ways that tables show."""
    return KINDS[outcome.mark]


def embedded(document: Results, catalogue: Catalogue) -> dict[str, Any]:
    """The data, ready for JSON."""
    batches = provenance.batches(document)
    numbers = {batch.run and batch.run.id: batch.number for batch in batches}
    return {
        "columns": COLUMNS,
        "rows": [_row(cell, numbers[_id(document, cell)]) for cell in document.cells],
        "stacks": {
            name: {
                "versions": {
                    package: tables.version_text(getattr(stack, package))
                    for package in (*SHOWN_PACKAGES, "python")
                },
                "asOf": stack.as_of,
                "lock": stack.lock_sha256,
                "packages": stack.packages,
            }
            for name, stack in document.stacks.items()
        },
        "failures": {
            name: {
                "title": catalogue[name].title,
                "advice": " ".join(wording.ways_around(catalogue[name])),
                "variants": _variants(catalogue, name),
                "fixes": _fixes(catalogue, name),
                "wrongFixes": {fix.name: fix.why for fix in catalogue[name].wrong_fixes},
            }
            for name in sorted(catalogue.records)
        },
        "outcomes": {
            str(outcome): {"kind": kind(outcome), "sentence": outcome.sentence}
            for outcome in Outcome
        },
        "signs": SIGNS,
        "standIns": stand_ins.reasons(),
        "runs": {batch.number: _run(batch) for batch in batches if batch.run},
    }


def _run(batch: provenance.Batch) -> dict[str, Any]:
    assert batch.run is not None
    return {
        "where": batch.where,
        "command": batch.run.command,
        "version": batch.run.harness_version,
        "profile": batch.run.profile,
        "note": batch.run.note,
    }


def _id(document: Results, cell: CellResult) -> str | None:
    run = document.run_of(cell)
    return run.id if run else None


def _row(cell: CellResult, run: int) -> list[Any]:
    signature = cell.signature
    # Only a run that surprised has more than one, and only then do they say anything.
    attempts = cell.attempts if len(cell.attempts) > 1 else []
    return [
        cell.id,
        cell.stack,
        cell.failure,
        cell.variant,
        cell.model,
        cell.world_size,
        cell.backend,
        cell.fix,
        int(cell.wrong_fix),
        int(cell.control),
        str(cell.outcome),
        tables.expected(cell),
        int(cell.agrees),
        cell.reason,
        cell.masked_by,
        [signature.exception, signature.message, signature.where] if signature else None,
        cell.traceback,
        cell.checks,
        cell.stand_ins,
        cell.evidence,
        cell.started_at,
        cell.seconds,
        str(cell.launch),
        [[str(a.launch), str(a.outcome), a.seconds] for a in attempts],
        # Never a link to anywhere but the folder of the logs.
        cell.log if cell.log and LOG.fullmatch(cell.log) else None,
        cell.command,
        run,
    ]


def _variants(catalogue: Catalogue, failure: str) -> dict[str, str]:
    reproduction = catalogue[failure].reproduction
    if reproduction is None:
        return {}
    return {
        name: ", ".join(
            f"{key.replace('_', ' ')}: {value}"
            for key, value in reproduction.conditions_of(name).items()
        )
        for name in reproduction.variants
    }


def _fixes(catalogue: Catalogue, failure: str) -> dict[str, dict[str, str]]:
    """The fixes by the names that cells have, their standalone forms among them."""
    found = {}
    for fix in catalogue[failure].fixes:
        told = {"summary": fix.summary, "snippet": fix.snippet, "cost": fix.cost}
        found[fix.name] = told
        if fix.standalone:
            found[standalone_name(fix.name)] = {**told, "snippet": fix.standalone}
    return found
