"""Places that are to be filled in: the word TODO, and a sentence that says what belongs there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trl_compat.files.reading import text_of

MARK = re.compile(r"\bTODO\b\W*(?P<sentence>[^\"]*)")


@dataclass(frozen=True)
class Todo:
    """One place.

    Attributes:
        line: its number, from 1.
        sentence: what belongs there.
    """

    path: Path
    line: int
    sentence: str

    def place(self, root: Path) -> str:
        """``advisories/x.yaml:3``, relative to a checkout."""
        return f"{self.path.relative_to(root).as_posix()}:{self.line}"


def left(paths: Iterable[Path]) -> Iterator[Todo]:
    """The places of some files, in their order; a file that is not there has none."""
    for path in paths:
        lines = text_of(path).splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            for match in MARK.finditer(line):
                yield Todo(path, number, match["sentence"].strip())
