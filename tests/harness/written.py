"""Results as they are on disk, read without the package, and from what git has."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.harness.conftest import ROOT
from trl_compat import results
from trl_compat.results import Results


def cells_in(reports: Path) -> dict[str, dict[str, Any]]:
    """The cells in a reports folder by id, as any reader of JSON finds them."""
    head = json.loads((reports / "results.json").read_text(encoding="utf-8"))
    files = [reports / stack["file"] for stack in head["stacks"].values()]
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {cell["id"]: cell for file in found for cell in file["cells"]}


def version_1(document: Results) -> dict[str, Any]:
    """What results.json was before each stack had a file of its own."""
    data = document.model_dump(mode="json")
    for stack in data["stacks"].values():
        del stack["grid"]
    for cell in data["cells"]:
        del cell["log_line"]
    return {"schema_version": 1, **data}


def committed(folder: Path) -> Results:
    """The results that git has; the working tree may hold others."""
    archive = ["git", "-C", str(ROOT), "archive", "HEAD", "reports"]
    done = subprocess.run(archive, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no checkout of git")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    found = results.read(folder / "reports" / "results.json")
    assert found is not None
    return found
