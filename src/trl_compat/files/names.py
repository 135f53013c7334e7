"""Names that somebody wrote: how they may look, and whether there is such a thing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trl_compat.errors import BadInput
from trl_compat.text.nearest import unknown_name

# Names that become parts of file names: that of a stack, of its cells and logs as well.
LONGEST = 96
NAME = re.compile(rf"[a-z0-9][a-z0-9.+-]{{0,{LONGEST - 1}}}")


def require_known(kind: str, wanted: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """The wanted names, or all known ones when none is wanted.

    Raises:
        BadInput: a wanted name is not known; the nearest one is suggested.
    """
    known = tuple(known)
    for name in wanted:
        if name not in known:
            raise BadInput(unknown_name(kind, name, known))
    return tuple(wanted) or known
