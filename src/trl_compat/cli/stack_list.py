"""The stacks that a selection means, as text: what ``matrix --list-stacks`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trl_compat.packages import SHOWN_PACKAGES

if TYPE_CHECKING:
    from trl_compat.cells.plan import CellPlan
    from trl_compat.stacks.matrix import Matrix


def lines(table: Matrix, planned: CellPlan) -> Iterator[str]:
    """A line for each stack with its versions, then what the grids are, then the totals."""
    cells = Counter(cell.stack for cell in planned.cells)
    columns = ("stack", *SHOWN_PACKAGES, "python", "as_of", "cells")
    rows: list[tuple[str, ...]] = [columns]
    for name, count in cells.items():
        stack = table.stacks[name]
        versions = [str(getattr(stack, package)) or "-" for package in SHOWN_PACKAGES]
        rows.append((name, *versions, stack.python, stack.as_of.isoformat(), str(count)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    for row in rows:
        yield "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
    for grid in table.grids:
        chosen = sum(name in cells for name in table.stacks_of(grid))
        if chosen:
            yield grid_line(table, grid, chosen)
    yield f"{len(cells)} stacks, {sum(cells.values())} cells"


def grid_line(table: Matrix, grid: str, chosen: int) -> str:
    """How many stacks of a grid are meant, and how it came by them."""
    found = table.expansion(grid)
    sample = table.grids[grid].sample
    text = f"grid {grid}: {chosen} of {len(found.stacks)} stacks; {sample} sample of "
    text += f"{found.combinations:,} combinations; releases as of {found.list_as_of}"
    for reason, count in found.left_out.items():
        text += f"; {count} left out: {reason}"
    return text
