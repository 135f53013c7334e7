"""Advisories in the OSV format (schema 1.7.5), for other tools.

OSV lists affected packages one by one and cannot express "only together with": each of our blocks
becomes one entry, for the package that has the failure (TRL if the block names it), with that
package's range.  The other conditions and package ranges are in the entry's ``database_specific``
and, in words, in the details.  Tools that ignore them report too many matches, never too few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trl_compat.advisories.catalogue import Catalogue
from trl_compat.advisories.schema import Advisory, Affected
from trl_compat.cells.outcome import Outcome
from trl_compat.packages import PACKAGES
from trl_compat.publishing.events import events
from trl_compat.results import Results, found_in
from trl_compat.shipped.releases import Releases
from trl_compat.usage.conditions import phrase

SCHEMA_VERSION = "1.7.5"
PREFIX = "x_trl-compat-"  # x_ marks a database of its own
REPOSITORIES = {
    "trl": "https://github.com/huggingface/trl",
    "transformers": "https://github.com/huggingface/transformers",
    "accelerate": "https://github.com/huggingface/accelerate",
    "peft": "https://github.com/huggingface/peft",
    "deepspeed": "https://github.com/deepspeedai/DeepSpeed",
    "torch": "https://github.com/pytorch/pytorch",
}
KINDS = {
    "report": "REPORT",
    "introduced": "INTRODUCED",
    "fix": "FIX",
    "discussion": "DISCUSSION",
    "web": "WEB",
}


def export(
    folder: Path, catalogue: Catalogue, releases: Releases, document: Results | None
) -> list[Path]:
    """Writes one record per advisory and returns the paths; withdrawn ones say so."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for failure, advisory in sorted(catalogue.records.items()):
        data = record(advisory, releases, document)
        path = folder / f"{PREFIX}{failure}.json"
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(path)
    return written


def record(advisory: Advisory, releases: Releases, document: Results | None) -> dict[str, Any]:
    """One advisory as an OSV record."""
    evidence = list(seen(advisory, document)) if document else []
    dates = [d for d in (advisory.published, advisory.modified, advisory.withdrawn) if d]
    modified = max([str(date) for date in dates] + [e["date"][:10] for e in evidence], default=None)
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "id": f"{PREFIX}{advisory.id}",
        "modified": _time(modified or releases.as_of),
    }
    if advisory.published:
        data["published"] = _time(str(advisory.published))
    if advisory.withdrawn:
        data["withdrawn"] = _time(str(advisory.withdrawn))
    return {
        **data,
        "summary": advisory.title,
        "details": _details(advisory),
        "affected": [_affected(advisory, block, releases) for block in advisory.affected],
        "references": [{"type": KINDS[r.kind], "url": r.url} for r in advisory.references],
        "database_specific": {
            "severity": str(advisory.severity),
            "cause": advisory.cause.strip(),
            "avoid": [way.model_dump(mode="json") for way in advisory.avoid],
            "fixes": [{"name": f.name, "snippet": f.snippet} for f in advisory.fixes],
            "wrong_fixes": [{"name": w.name, "why": w.why} for w in advisory.wrong_fixes],
            "evidence": evidence,
        },
    }


def seen(advisory: Advisory, document: Results) -> Iterator[dict[str, str]]:
    """Where the failure was really seen and where it was looked for and not there, with dates."""
    for cell in document.cells:
        if cell.fixed or cell.control:
            continue
        shown = found_in(cell) == advisory.id
        if shown or (cell.failure == advisory.id and cell.outcome is Outcome.PASS):
            yield {
                "stack": cell.stack,
                "variant": cell.variant,
                "model": cell.model,
                "outcome": str(Outcome.REPRODUCED if shown else cell.outcome),
                "evidence": cell.evidence,
                "date": cell.started_at,
            }


def _affected(advisory: Advisory, block: Affected, releases: Releases) -> dict[str, Any]:
    named = {**block.versions, **block.commits}
    package = "trl" if "trl" in named else next((p for p in PACKAGES if p in named), "trl")
    also = {p: r for p, r in block.versions.items() if p != package}
    symptom = advisory.symptoms[block.symptom]
    entry: dict[str, Any] = {
        "package": {"ecosystem": "PyPI", "name": package, "purl": f"pkg:pypi/{package}"},
        "database_specific": {
            "only_together_with": also,
            "commits": {p: list(commits) for p, commits in block.commits.items()},
            "conditions": _plain(advisory, block),
            "also_requires": block.also_requires,
            "symptom": {"exception": symptom.exception, "message": symptom.message},
        },
    }
    if package in block.versions:
        runs = events(package, block.versions[package], releases)
        entry["ranges"] = [{"type": "ECOSYSTEM", "events": run.as_osv()} for run in runs]
    elif package in block.commits:
        # One tree, and nothing about those after it.
        commits = [[{"introduced": c}, {"last_affected": c}] for c in block.commits[package]]
        git = {"type": "GIT", "repo": REPOSITORIES[package]}
        entry["ranges"] = [{**git, "events": run} for run in commits]
    else:
        entry["ranges"] = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
    return entry


def _plain(advisory: Advisory, block: Affected) -> dict[str, Any]:
    named = advisory.conditions_for_users(block)
    return {name: list(v) if isinstance(v, tuple) else [v] for name, v in named.items()}


def _details(advisory: Advisory) -> str:
    parts = [" ".join(advisory.summary.split()), advisory.details.strip(), "Affected:"]
    for block in advisory.affected:
        where = [f"{p} {r}" for p, r in block.versions.items()]
        where += [f"{p} at commit {', '.join(c)}" for p, c in block.commits.items()]
        how = phrase(_plain(advisory, block))
        clause = f"- {' and '.join(where)}" + (f", with {how}" if how else "")
        parts.append(clause + (f", if {block.also_requires}" if block.also_requires else ""))
    parts.append(" ".join(advisory.advice.split()))
    return "\n".join(dict.fromkeys(part for part in parts if part))


def _time(day: str) -> str:
    return f"{day}T00:00:00Z"
