"""Stacks put into the text of matrix.yaml: a line each, behind the last that is there.

The rest of the file is not touched, so its comments and its order stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from trl_compat.errors import BadInput
from trl_compat.refresh.proposal import Proposed
from trl_compat.stacks.stack_lines import written


def with_stacks(text: str, path: Path, proposed: Sequence[Proposed]) -> str:
    """The text of a matrix file with some stacks more.

    Raises:
        BadInput: the stacks are not written as a block, one below the other.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a matrix before
    stacks = next(value for key, value in root.value if key.value == "stacks")
    if not isinstance(stacks, yaml.MappingNode) or stacks.flow_style:
        raise BadInput(f"{path}: 'stacks' is written in one line; write a stack in each line")
    first, last = stacks.value[0][0], stacks.value[-1][1]
    indent = " " * first.start_mark.column
    lines = text.splitlines(keepends=True)
    # A block that stands in lines of its own ends where the next line begins.
    at = last.end_mark.line + (1 if last.end_mark.column else 0)
    while at and not lines[at - 1].strip():
        at -= 1  # blank lines belong to what follows
    while at and lines[at - 1].lstrip().startswith("#") and not lines[at - 1].startswith(indent):
        at -= 1  # and so do comments that are not of the section
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    ours = [f"{indent}{one.name}: {written(one.stack, one.why)}\n" for one in proposed]
    return "".join([*lines[:at], *ours, *lines[at:]])
