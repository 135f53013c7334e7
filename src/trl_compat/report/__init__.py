"""Reports: everything in reports/ except results.json is rendered from results.json alone.

The same results.json gives the same bytes: scrubbing happens when results.json is written, and
nothing of the rendering machine gets into a report.
"""

from __future__ import annotations

from pathlib import Path

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.report import logs
from trl_compat.report.formats import FORMATS


def write_all(folder: Path, document: results.Results, catalogue: Catalogue) -> None:
    """Writes results.json and every report made from it; removes logs that none of them names."""
    path = folder / "results.json"
    results.write(path, document)
    written = results.read(path)
    assert written is not None
    render_all(folder, written, catalogue)
    logs.remove_others(folder, written)


def render_all(folder: Path, document: results.Results, catalogue: Catalogue) -> None:
    """Writes every report that is made from results.json without being asked for."""
    for name, text in rendered(document, catalogue).items():
        (folder / name).write_bytes(text.encode())


def rendered(document: results.Results, catalogue: Catalogue) -> dict[str, str]:
    """The text of every such report, by file name."""
    return {f.file: f.render(document, catalogue) for f in FORMATS.values() if f.default}


def outdated(folder: Path, document: results.Results, catalogue: Catalogue) -> list[str]:
    """The reports in a folder that are not, byte for byte, what their results.json makes now."""
    return [
        name
        for name, text in rendered(document, catalogue).items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    ]
