"""``trl-compat merge``: put the results of several machines together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trl_compat.errors import EXIT_FINDINGS, BadInput
from trl_compat.text import terminal

if TYPE_CHECKING:
    from trl_compat.report.combined import Folder
    from trl_compat.results import Combined

MOST = 20
PATH = click.Path(path_type=Path)


@click.command(epilog="Example: trl-compat merge shard-1 shard-2 shard-3 --into reports")
@click.argument("given", nargs=-1, required=True, type=PATH, metavar="RESULTS...")
@click.option(
    "--into",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of reports to write; results that it has are merged as well.",
)
@click.pass_obj
def merge(root: Path, given: tuple[Path, ...], into: Path) -> None:
    """Put results of several machines together and make every report from them.

    RESULTS are folders of reports, or their results.json. Evidence logs are taken along. Nothing is
    run. A cell whose results differ under the same key is unstable; both results are kept.

    Exit code 0: merged; 1: merged, and results of a cell differ; 2: wrong usage or bad input, and
    nothing was written.
    """
    import filelock

    from trl_compat import advisories
    from trl_compat.cells import rerun
    from trl_compat.files import project
    from trl_compat.report import combined

    usual = project.at(root)
    where = usual if into.resolve() == usual.reports else project.at(root, reports=into)
    catalogue = advisories.load(where.advisories, where.reproductions)
    order = _order(where.matrix_file)
    folders = [combined.read(path) for path in _once(given, where.reports)]
    # Before anything of the folder is touched, be it a lock.
    combined.combine([*_there(where.reports), *folders], catalogue, order)
    try:
        where.state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--into {into}: cannot be written to ({error.strerror})") from None
    with filelock.FileLock(where.state / "reports.lock"):
        sources = [*_there(where.reports), *folders]
        found = combined.combine(sources, catalogue, order)
        at = "" if where is usual else f"--reports {rerun.shown(into)}"
        document = combined.rerun_into(found.document, at)
        document = combined.write(where.reports, document, sources, catalogue)
    click.echo(
        f"merged {len(folders)} results into {rerun.shown(into)}: {len(document.cells)} cells of "
        f"{len(document.stacks)} stacks; {found.shared} cells were in more than one place"
    )
    for line in _remarks(found, combined.missing_shards(folder.document for folder in folders)):
        click.echo(terminal.line(line))
    if found.conflicts:
        sys.exit(EXIT_FINDINGS)


def _order(matrix_file: Path) -> Iterable[str]:
    """The stacks in the order of the matrix; those of grids only where grids can be made."""
    from trl_compat.stacks import matrix
    from trl_compat.stacks.stack_names import stack_names

    try:
        return matrix.load(matrix_file).stacks
    except BadInput:
        return stack_names(matrix_file)


def _once(given: Sequence[Path], target: Path) -> list[Path]:
    """What was given, each folder once, and not the one that is written to."""
    heads = {(path / "results.json" if path.is_dir() else path).resolve(): path for path in given}
    heads.pop(target / "results.json", None)
    return list(heads.values())


def _there(target: Path) -> list[Folder]:
    """The results that the folder has already.

    Raises:
        BadInput: they cannot be read.
    """
    from trl_compat import results
    from trl_compat.report.combined import Folder

    head = target / "results.json"
    document = results.read(head)
    return [] if document is None else [Folder(target, head, document)]


def _remarks(found: Combined, lacking: Iterable[str]) -> Iterator[str]:
    """What there is to say of merged results: what differs last, where it is seen."""
    from trl_compat.results import combining

    yield from (f"note: {note}" for note in (*lacking, *found.notes))
    for one in found.replaced[:MOST]:
        old, new = combining.verdict(one.old), combining.verdict(one.new)
        yield f"replaced: {one.new.id}: {old} of {one.old.started_at} ({one.why}); now {new}"
    if len(found.replaced) > MOST:
        yield f"and {len(found.replaced) - MOST} more were replaced"
    for cell in found.conflicts[:MOST]:
        yield f"conflict: {cell.id}: {cell.reason}"
        yield f"  again: {cell.command}"
    if len(found.conflicts) > MOST:
        yield f"and {len(found.conflicts) - MOST} more conflicts, listed in the reports"
    if count := len(found.conflicts):
        which = "1 cell has" if count == 1 else f"{count} cells have"
        yield f"{which} results that differ: unstable in the reports, every result is kept"
