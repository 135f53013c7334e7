"""What was run of one failure, as text: computed from results and shipped.

``explain`` prints the same inside a checkout, where it reads ``reports/results.json``, and outside,
where it reads what ``trl-compat advisories compile`` computed from the committed results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trl_compat
from trl_compat.advisories import Advisory
from trl_compat.cells.expectations import standalone_name
from trl_compat.report import counts, provenance
from trl_compat.report.release_summary import summaries
from trl_compat.results import Results

SHIPPED = Path(trl_compat.__file__).with_name("shipped") / "results.json"


@dataclass(frozen=True)
class Account:
    """What is told of a failure.

    Attributes:
        release_summary: what each release does about it.
        evidence: how that was proven, on which machine and when.
        fixes: what became of the cells of each fix, right or wrong, by its name.
        source: where this is from, where that is not the checkout's own results.
    """

    release_summary: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    fixes: Mapping[str, str] = field(default_factory=dict)
    source: str = ""


def of(document: Results, advisory: Advisory) -> Account:
    """What the results tell of a failure."""
    mine = [cell for cell in document.cells if cell.failure == advisory.id]
    if not mine:
        return Account()
    told = {
        fix.name: counts.proven(counts.of_fix(mine, advisory.id, fix.name))
        for fix in advisory.fixes
    }
    for name in (standalone_name(fix.name) for fix in advisory.fixes if fix.standalone):
        told[name] = counts.proven(counts.of_fix(mine, advisory.id, name))
    for wrong in advisory.wrong_fixes:
        found = counts.of_fix(mine, advisory.id, wrong.name, wrong=True)
        told[wrong.name] = counts.refuted(found)
    return Account(
        release_summary=tuple(
            f"{s.words} TRL {s.releases}" for s in summaries(document, advisory.id)
        ),
        evidence=tuple(provenance.evidence(document, mine)),
        fixes=told,
    )


def compiled(account: Account) -> dict[str, Any]:
    """An account as it is shipped."""
    return {name: value for name, value in asdict(account).items() if name != "source"}


def shipped(failure: str) -> Account:
    """What the results tell that the package came with; nothing if they do not have the failure."""
    told = json.loads(SHIPPED.read_text(encoding="utf-8"))["failures"].get(failure)
    if told is None:
        return Account()
    return Account(
        release_summary=tuple(told["release_summary"]),
        evidence=tuple(told["evidence"]),
        fixes=told["fixes"],
        source=f"the results shipped with trl-compat {trl_compat.__version__}",
    )
