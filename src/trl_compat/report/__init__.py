"""Reports: everything in reports/ except the results and logs is rendered from the results alone.

The same results give the same bytes: scrubbing happens when they are written, and nothing of the
rendering machine gets into a report.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

from trl_compat import results
from trl_compat.advisories import Catalogue
from trl_compat.report import freshness, known_good_files, logs, markdown
from trl_compat.report.formats import FORMATS
from trl_compat.report.known_good import Release, known_good
from trl_compat.stacks.environments import cache


def write_all(
    folder: Path,
    document: results.Results,
    catalogue: Catalogue,
    *,
    locks: Sequence[Path] = (),
    note: Path | None = None,
) -> None:
    """Writes results and every report made from them; ``locks`` as in :func:`render_all`.

    Reports of which ``note`` says that they would be the same are not made again.
    """
    path = folder / "results.json"
    results.write(path, document)
    if note is not None and freshness.holds(note, folder, catalogue):
        return
    written = results.read_leniently(path)
    assert written is not None
    files = render_all(folder, written, catalogue, locks=locks)
    if note is not None:
        freshness.write(note, folder, catalogue, files)


def upgrade(folder: Path, document: results.Results) -> results.Results:
    """Writes results of an older schema, which a folder has, in the current one."""
    known = results.with_runs(document)
    results.write(folder / "results.json", logs.keep(folder, known, {}))
    written = results.read(folder / "results.json")
    assert written is not None
    return written


def render_all(
    folder: Path, document: results.Results, catalogue: Catalogue, *, locks: Sequence[Path] = ()
) -> list[str]:
    """Writes every report that is made from results.json without being asked for; names them.

    Args:
        folder: the reports.
        document: the results.
        catalogue: the advisories.
        locks: folders with locks of stacks, beside that of this machine.
    """
    releases = known_good(document, catalogue)
    texts = _rendered(document, catalogue, releases)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    for path in _of_gone_failures(folder, texts):
        path.unlink(missing_ok=True)
    kept = known_good_files.write_locks(folder, releases, [cache.root() / "locks", *locks])
    return [*texts, *kept]


def rendered(document: results.Results, catalogue: Catalogue) -> dict[str, str]:
    """The text of every such report, by file name."""
    return _rendered(document, catalogue, known_good(document, catalogue))


def _rendered(
    document: results.Results, catalogue: Catalogue, releases: Sequence[Release]
) -> dict[str, str]:
    texts = {f.file: f.render(document, catalogue) for f in FORMATS.values() if f.default}
    details = markdown.details(document, catalogue)
    return {**texts, **details, **known_good_files.files(releases)}


def outdated(folder: Path, document: results.Results, catalogue: Catalogue) -> list[str]:
    """The reports in a folder that are not, byte for byte, what their results.json makes now."""
    texts = rendered(document, catalogue)
    changed = [
        name
        for name, text in texts.items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    ]
    gone = [*_of_gone_failures(folder, texts), *known_good_files.left_over(folder, texts)]
    return [*changed, *(str(path.relative_to(folder)) for path in gone)]


def _of_gone_failures(folder: Path, texts: Container[str]) -> list[Path]:
    """Files of failures that are not rendered any more; only such as were made here."""
    start = markdown.GENERATED.encode()
    return [
        path
        for path in sorted((folder / "failures").glob("*.md"))
        if f"failures/{path.name}" not in texts
        and path.is_file()
        and not path.is_symlink()
        and path.read_bytes().startswith(start)
    ]
