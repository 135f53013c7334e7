"""Advisories and results in the form that is shipped: small, and read without a model library.

``trl-compat advisories compile`` writes these files; a test compares them with their sources.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trl_compat.advisories import STANDALONE, Catalogue, compiling
from trl_compat.advisories.compiling import ABOUT, Json
from trl_compat.cells.outcome import Outcome
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.results import CellResult, Results, found_in


def folder_in(root: Path) -> Path:
    """The folder of shipped files in a checkout.

    Raises:
        BadInput: there is none.
    """
    folder = root / "src" / "trl_compat" / "shipped"
    if not folder.is_dir():
        raise BadInput(f"{folder}: not found; run this command in a checkout")
    return folder


def write(folder: Path, catalogue: Catalogue, document: Results) -> None:
    """Writes what is made from advisories and results into the folder of shipped files."""
    files = {
        "advisories": compiling.advisories(catalogue),
        "results": results(document, catalogue),
        "seconds": seconds(document),
    }
    for name, data in files.items():
        text = json.dumps(data, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def results(document: Results, catalogue: Catalogue) -> Json:
    """What was run and what was found.

    By stack for :mod:`trl_compat.matching.nearest_run`, by failure for
    :mod:`trl_compat.report.account`.
    """
    from trl_compat.report import account  # its package holds every renderer

    stacks = {}
    for name, stack in document.stacks.items():
        cells = [cell for cell in document.cells if cell.stack == name]
        if not cells:
            continue
        stacks[name] = {
            "versions": {package: getattr(stack, package) for package in PACKAGES},
            "python": stack.python,
            "run": max(cell.started_at for cell in cells)[:10],
            "cells": len(cells),
            "found": dict(sorted(_found(cells).items())),
            "passed": sorted(_passed(cells)),
        }
    failures = {
        failure: account.compiled(account.of(document, catalogue[failure]))
        for failure in catalogue.subjects
    }
    return {
        "about": ABOUT,
        "generated_at": document.generated_at,
        "stacks": stacks,
        "failures": failures,
    }


def seconds(document: Results) -> Json:
    """The mean seconds of cells, for :mod:`trl_compat.shipped.seconds`."""
    taken: dict[str, dict[str, dict[str, list[float]]]] = {}
    for cell in document.cells:
        failures = taken.setdefault(cell.stack, {})
        sizes = failures.setdefault(cell.failure, {})
        sizes.setdefault(str(cell.world_size), []).append(cell.seconds)
    means = {
        stack: {
            failure: {
                ranks: round(statistics.mean(took), 1) for ranks, took in sorted(sizes.items())
            }
            for failure, sizes in sorted(failures.items())
        }
        for stack, failures in sorted(taken.items())
    }
    return {"about": ABOUT, "stacks": means}


def _found(cells: Iterable[CellResult]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    cells = list(cells)
    for cell in cells:
        failure = found_in(cell)
        if failure is None:
            continue
        entry = found.setdefault(
            failure, {"symptoms": [], "evidence": [], "date": "", "patches": []}
        )
        _add(entry["symptoms"], cell.symptom)
        _add(entry["evidence"], cell.evidence)
        entry["date"] = max(entry["date"], cell.started_at[:10])
    for cell in cells:
        proven = cell.fixed and not cell.wrong_fix and cell.outcome is Outcome.PASS
        if (cell.fix or "").endswith(STANDALONE):
            continue  # the same patch once more
        if proven and cell.failure in found:
            _add(found[cell.failure]["patches"], cell.fix)
    return found


def _passed(cells: Iterable[CellResult]) -> set[str]:
    """Failures of which something ran on the stack and nothing failed, controls left aside."""
    tried = [c for c in cells if not c.fixed and not c.control]
    ran = {c.failure for c in tried if c.outcome is Outcome.PASS}
    return ran - {
        c.failure for c in tried if c.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE)
    }


def _add(values: list[Any], value: object) -> None:
    if value is not None and value not in values:
        values.append(value)
