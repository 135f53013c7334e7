"""The data that compatibility.html embeds for its script: cells column by column, and shared data.

The page shows the first table and the advisories without it.  The script builds the evidence of a
cell when a reader opens it, so a page is no larger than its data.  Cells repeat one another, so a
column is its distinct values, and for each cell the place of its own among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trl_compat.advisories import Catalogue
from trl_compat.cells.expectations import standalone_name
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import SHOWN_PACKAGES
from trl_compat.report import logs, provenance, stand_ins, tables, wording
from trl_compat.results import CellResult, Results

# In a command, what the cell itself says stands as one of these characters, which no text has.
IN_COMMANDS = {"stack": "\ue000", "failure": "\ue001", "variant": "\ue002", "model": "\ue003"}
KINDS = {"✅": "pass", "❌": "fail", "⚠️": "look", "—": "absent"}
SIGNS = {"pass": "✓", "fail": "✗", "look": "!", "absent": "–", "unrun": "·"}


def kind(outcome: Outcome) -> str:
    """``pass``, ``fail``, ``look`` or ``absent``: the four ways that tables show."""
    return KINDS[outcome.mark]


def embedded(document: Results, catalogue: Catalogue) -> dict[str, Any]:
    """The data, ready for JSON."""
    batches = provenance.batches(document)
    numbers = {batch.run and batch.run.id: batch.number for batch in batches}
    known: dict[str, int] = {}
    return {
        **_columns([_row(cell, numbers[_id(document, cell)]) for cell in document.cells]),
        "stacks": {
            name: {
                "versions": {
                    package: tables.version_text(getattr(stack, package))
                    for package in (*SHOWN_PACKAGES, "python")
                },
                "asOf": stack.as_of,
                "lock": stack.lock_sha256,
                "grid": stack.grid,
                "packages": [
                    known.setdefault(f"{package}=={version}", len(known))
                    for package, version in stack.packages.items()
                ],
            }
            for name, stack in document.stacks.items()
        },
        "packages": list(known),
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


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows by column; an id that follows from the other columns is left out."""
    names = [name for name in rows[0] if name != "id"] if rows else []
    columns = {}
    for name in names:
        places: dict[str, int] = {}
        values: list[Any] = []
        at = []
        for row in rows:
            key = json.dumps(row[name])
            if key not in places:
                places[key] = len(values)
                values.append(row[name])
            at.append(places[key])
        columns[name] = {"values": values, "at": at} if len(values) > 1 else {"values": values}
    odd = {number: row["id"] for number, row in enumerate(rows) if row["id"] != _usual_id(row)}
    return {"count": len(rows), "columns": columns, "ids": odd}


def _usual_id(row: Mapping[str, Any]) -> str:
    parts = [row[name] for name in ("stack", "failure", "variant", "model")]
    return "__".join([*parts, f"x{row['ranks']}", *([row["fix"]] if row["fix"] else [])])


def _row(cell: CellResult, run: int) -> dict[str, Any]:
    signature = cell.signature
    # Only a run that surprised has more than one, and only then do they say anything.
    attempts = cell.attempts if len(cell.attempts) > 1 else []
    return {
        "id": cell.id,
        "stack": cell.stack,
        "failure": cell.failure,
        "variant": cell.variant,
        "model": cell.model,
        "ranks": cell.world_size,
        "backend": cell.backend,
        "fix": cell.fix,
        "wrongFix": int(cell.wrong_fix),
        "control": int(cell.control),
        "outcome": str(cell.outcome),
        "expected": tables.expected(cell),
        "agrees": int(cell.agrees),
        "reason": cell.reason,
        "maskedBy": cell.masked_by,
        "signature": [signature.exception, signature.message, signature.where]
        if signature
        else None,
        "traceback": cell.traceback,
        "checks": cell.checks,
        "standIns": cell.stand_ins,
        "evidence": cell.evidence,
        "day": cell.started_at[:10],
        "seconds": cell.seconds,
        "launch": str(cell.launch),
        "attempts": [[str(a.launch), str(a.outcome), a.seconds] for a in attempts],
        # Never a link to anywhere but the folder of the logs; it begins with that of the stack.
        "log": _log(cell),
        "command": _command(cell),
        "run": run,
    }


def _log(cell: CellResult) -> str | int | None:
    """The line in the log of the cell's stack, or where else its log is."""
    usual = cell.log == f"{logs.FOLDER}/{cell.stack}.log" and cell.log_line is not None
    return cell.log_line if usual and logs.link(cell) else logs.link(cell)


def _command(cell: CellResult) -> str:
    """The command with what the cell itself says left to the reader, so that many are the same."""
    text = cell.command
    if any(sign in text for sign in IN_COMMANDS.values()):
        return "".join(c for c in text if c not in IN_COMMANDS.values())
    for name, sign in IN_COMMANDS.items():
        text = text.replace(f" {getattr(cell, name)} ", f" {sign} ")
    return text


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
