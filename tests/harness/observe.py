"""Keeps one recorded error for every symptom of every failure, for the tests of the signatures.

``python -m tests.harness.observe [failure …]`` takes them from what the matrix has recorded on this
machine (``.trl-compat/``) and writes ``observed/<failure>.json``.  Run it after a symptom was added
or changed and its cell has been run; what is committed are real errors, none is made up.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.harness.conftest import ROOT
from trl_compat import advisories
from trl_compat.advisories import Advisory, Symptom
from trl_compat.files import project

FOLDER = Path(__file__).with_name("observed")


def errors(state: Path, failure: str) -> list[tuple[str, dict[str, Any]]]:
    """The first error of every recorded cell of a failure, with the cell's id."""
    found = []
    for path in sorted((state / "cells").glob(f"*__{failure}__*.json")):
        record = json.loads(path.read_bytes())
        ranks = record["observations"][0]["ranks"].values()
        raised = [rank for rank in ranks if rank["status"] == "raised"]
        if raised:
            first = min(raised, key=lambda rank: float(rank["ended"]))
            found.append((record["cell_id"], first["error"]))
    return found


def parts(symptom: Symptom) -> list[str]:
    """The parts of a symptom that an error must match."""
    return ["exception", "message", "where"] + ["through"] * (symptom.through is not None)


def observed(advisory: Advisory, state: Path) -> list[dict[str, Any]]:
    """An entry for each symptom of which an error is recorded."""
    recorded = errors(state, advisory.id)
    entries = []
    for name, symptom in advisory.symptoms.items():
        for cell, error in recorded:
            if symptom.matches(error):
                entries.append(
                    {
                        "symptom": name,
                        "cell": cell,
                        "parts": parts(symptom),
                        "error": {
                            "exception": error["exception"],
                            "message": error["message"],
                            "where": error["where"],
                            "frames": [
                                {"file": frame["file"], "function": frame["function"]}
                                for frame in error["frames"]
                            ],
                        },
                    }
                )
                break
    return entries


def main(failures: list[str]) -> None:
    """Writes the files of the named failures, or of all."""
    where = project.at(ROOT)
    catalogue = advisories.load(where.advisories, where.reproductions)
    FOLDER.mkdir(exist_ok=True)
    for failure in failures or catalogue.failures:
        entries = observed(catalogue[failure], where.state)
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        (FOLDER / f"{failure}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        lacking = set(catalogue[failure].symptoms) - {entry["symptom"] for entry in entries}
        print(f"{failure}: {len(entries)} kept" + "".join(f"; {n} not seen" for n in lacking))


if __name__ == "__main__":
    main(sys.argv[1:])
