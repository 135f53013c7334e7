"""Folders of reports put together: their results, logs and locks, and the reports made again.

Everything is read and combined before anything is written, so that what is wrong with one of them
leaves the folder that is written to as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trl_compat import report, results
from trl_compat.advisories import Catalogue
from trl_compat.errors import BadInput
from trl_compat.report import known_good_files, logs
from trl_compat.results import Combined, Results, Source

REPORTS = re.compile(r" --reports (?:'[^']*'|[^\s']+)")
SHARD = re.compile(r" --shard[ =]([0-9]+)/([0-9]+)")


@dataclass(frozen=True)
class Folder:
    """A folder of reports, with the results in it.

    Attributes:
        path: the folder.
        head: its results.json, as the user named it or not.
    """

    path: Path
    head: Path
    document: Results


def read(given: Path) -> Folder:
    """The results in a folder, or of a results.json.

    Raises:
        BadInput: there are none, or a part of them cannot be read.
    """
    head = given / "results.json" if given.is_dir() else given
    document = results.read(head)
    if document is None:
        raise BadInput(f"{given}: no results; name a folder with a results.json, or that file")
    return Folder(head.parent, head, document)


def combine(folders: Sequence[Folder], catalogue: Catalogue, order: Iterable[str]) -> Combined:
    """The results of folders as one.

    Raises:
        BadInput: they cannot be combined, or have failures that no advisory here describes.
    """
    for folder in folders:
        unknown = {cell.failure for cell in folder.document.cells} - set(catalogue.subjects)
        if unknown:
            made_by = folder.document.harness_version
            raise BadInput(
                f"{folder.head}: has results of '{min(unknown)}', of which there is no advisory "
                f"here; merge them with the checkout that made them (trl-compat {made_by})"
            )
    return results.combine([Source(str(f.head), f.document) for f in folders], order)


def rerun_into(document: Results, option: str) -> Results:
    """Results whose commands write to the folder that they are now in.

    Args:
        document: the results; its cells name the folders of the machines that ran them.
        option: ``--reports FOLDER`` as text for a shell, empty for the project's own.
    """

    def command(text: str) -> str:
        by_matrix = " matrix " in text
        return REPORTS.sub(lambda _: f" {option}" if option else "", text) if by_matrix else text

    cells = [cell.model_copy(update={"command": command(cell.command)}) for cell in document.cells]
    return document.model_copy(update={"cells": cells})


def missing_shards(documents: Iterable[Results]) -> Iterator[str]:
    """Shards of which there are no results, though there are of others: a sentence for each run."""
    seen: dict[tuple[str, int], set[int]] = {}
    for document in documents:
        for command in {document.command, *(run.command for run in document.runs or ())}:
            match = SHARD.search(command)
            if match is not None:
                number, count = map(int, match.groups())
                rest = REPORTS.sub("", SHARD.sub("", command))
                seen.setdefault((rest, count), set()).add(number)
    for (command, count), numbers in sorted(seen.items()):
        lacking = [f"{n}/{count}" for n in range(1, count + 1) if n not in numbers]
        if lacking:
            shown = ", ".join(lacking[:10]) + (", …" if len(lacking) > 10 else "")
            yield f"no results of shard {shown} of: {command}"


def write(
    target: Path, document: Results, folders: Sequence[Folder], catalogue: Catalogue
) -> Results:
    """Writes combined results, their logs and locks, and every report; gives what is written."""
    document = logs.keep(target, document, _texts(document, folders), as_said=True)
    locks = [folder.path / known_good_files.FOLDER for folder in folders]
    report.write_all(target, document, catalogue, locks=locks)
    return document


def _texts(document: Results, folders: Sequence[Folder]) -> dict[str, str]:
    """The logs by the cell's id: that of the result that is kept, or those of every side."""
    kept = [logs.kept(folder.path, folder.document) for folder in folders]
    found: dict[str, dict[str, str]] = {}
    for folder, texts in zip(folders, kept, strict=True):
        for cell in folder.document.cells:
            if text := texts.get(cell.id):
                found.setdefault(cell.id, {})[text] = cell.started_at
    return {
        cell.id: _joined(found[cell.id], None if cell.sides else cell.started_at)
        for cell in document.cells
        if cell.id in found
    }


def _joined(texts: Mapping[str, str], of: str | None) -> str:
    """The texts one after the other, the oldest first; those within another one only there.

    Args:
        texts: when each was begun, by the text.
        of: only texts that were begun then, if there are any.
    """
    wanted = [text for text, begun in texts.items() if begun == of] or list(texts)
    wanted.sort(key=lambda text: (texts[text], text))
    whole = [text for text in wanted if not any(text in one and text != one for one in wanted)]
    return "\n".join(whole if of is None else whole[-1:])
