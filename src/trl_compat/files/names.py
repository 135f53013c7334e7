"""Names that somebody wrote: how they may look, and whether there is such a thing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trl_compat.errors import BadInput
from trl_compat.text.nearest import unknown_name

# Names that become parts of file names.
NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
# Those of the stacks that grids make say versions, and may be longer.
LONGEST_OF_STACK = 96
STACK_NAME = re.compile(rf"[a-z0-9][a-z0-9.+-]{{0,{LONGEST_OF_STACK - 1}}}")


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
