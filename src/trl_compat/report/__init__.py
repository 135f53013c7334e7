"""Reports: everything in reports/ but results.json is rendered from results.json alone."""

from __future__ import annotations

from pathlib import Path

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.report import junit, markdown


def write_all(folder: Path, document: results.Results, catalogue: Catalogue) -> None:
    """Writes results.json and every report made from it."""
    results.write(folder / "results.json", document)
    render_all(folder, document, catalogue)


def render_all(folder: Path, document: results.Results, catalogue: Catalogue) -> None:
    """Writes every report that is made from results.json."""
    (folder / "compatibility.md").write_text(
        results.scrub(markdown.render(document, catalogue)), encoding="utf-8"
    )
    (folder / "junit.xml").write_text(results.scrub(junit.render(document)), encoding="utf-8")


def write_log(path: Path, text: str) -> None:
    """Writes the log of a cell, scrubbed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(results.scrub(text), encoding="utf-8")
