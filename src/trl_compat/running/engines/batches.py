"""Which cells go to a node together, what they ask for, and what becomes of a batch that is lost.

Pure: nothing here knows Ray.  The cells of a batch are of one stack, because they share the
stack's environment and the parent process that has done its imports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from trl_compat.cells.plan import Cell
from trl_compat.machine.host import STACK_MEMORY

# So often a cell may be running when its node or its worker is lost before it counts as the cause.
MOST_LOSSES = 3


@dataclass(frozen=True)
class Node:
    """What a living node has in all, taken or free; memory in bytes."""

    cpus: float
    gpus: float
    memory: float


@dataclass(frozen=True)
class Request:
    """What a batch asks for: CPUs, GPUs and bytes of memory."""

    cpus: float
    gpus: int
    memory: int

    def fits(self, node: Node) -> bool:
        """Whether a node has that much, if nothing else runs there."""
        return node.cpus >= self.cpus and node.gpus >= self.gpus and node.memory >= self.memory

    def places(self, nodes: Iterable[Node]) -> int:
        """How many batches that ask for this the nodes run at a time, if nothing else runs."""
        return sum(self.at_a_time(node) for node in nodes)

    def at_a_time(self, node: Node) -> int:
        """How many of them one node runs at a time."""
        parts = ((node.cpus, self.cpus), (node.gpus, self.gpus), (node.memory, self.memory))
        return int(min(has // wanted for has, wanted in parts if wanted))


def request(cells: Sequence[Cell], nodes: Sequence[Node]) -> Request:
    """One CPU for each rank of the largest cell, and on GPUs one GPU for each.

    Ranks can share CPUs, so where no node has as many, the largest node's are enough.  They cannot
    share GPUs: where no node has as many, the request fits nowhere.
    """
    ranks = max(cell.world_size for cell in cells)
    gpus = max((cell.world_size for cell in cells if cell.device == "cuda"), default=0)
    able = [node for node in nodes if node.gpus >= gpus]
    cpus = min(float(ranks), max((node.cpus for node in able), default=0.0)) or 1.0
    memory = min(
        STACK_MEMORY * ranks // 2, int(max((node.memory for node in able if node.cpus), default=0))
    )
    return Request(cpus, gpus, memory)


def batches(cells: Sequence[Cell], places: int) -> list[list[Cell]]:
    """The cells in batches, the largest first: one for each stack, or more where places are free.

    A control stays with the cells that it vouches for.
    """
    by_stack = [list(group) for _, group in groupby(cells, key=lambda cell: cell.stack)]
    parts = -(-places // len(by_stack)) if by_stack else 0
    found = [batch for stack in by_stack for batch in _split(stack, max(1, parts))]
    return sorted(found, key=len, reverse=True)


def _split(cells: Sequence[Cell], parts: int) -> list[list[Cell]]:
    """Cells of a stack in at most so many batches of about the same size, in their order."""
    together = [
        list(group) for _, group in groupby(cells, key=lambda c: (c.failure, c.model, c.world_size))
    ]
    found: list[list[Cell]] = [[]]
    for group in together:
        full = len(found[-1]) >= len(cells) / parts
        if found[-1] and full and len(found) < parts:
            found.append([])
        found[-1] += group
    return found


def control_of(cell: Cell, cells: Iterable[Cell]) -> Cell | None:
    """The control of a cell, among the cells of a campaign."""
    if cell.is_control:
        return None
    same = ("stack", "failure", "model", "world_size", "device")
    return next(
        (c for c in cells if c.is_control and all(getattr(c, n) == getattr(cell, n) for n in same)),
        None,
    )


@dataclass
class Progress:
    """The cells of a batch that is under way.

    Attributes:
        done: those that have a record.
        running: the one that runs now.
        failed: the last words of its process; empty if it has not failed.
    """

    cells: Sequence[Cell]
    done: set[str] = field(default_factory=set)
    running: str = ""
    failed: str = ""

    def begins(self, cell_id: str) -> None:
        """A cell begins."""
        self.running = cell_id

    def ended(self, cell_id: str) -> bool:
        """A cell has its record; False if it had one before, which this one corrects."""
        first = cell_id not in self.done
        self.done.add(cell_id)
        self.running = "" if self.running == cell_id else self.running
        return first

    @property
    def left(self) -> list[Cell]:
        """The cells without a record."""
        return [cell for cell in self.cells if cell.id not in self.done]


@dataclass
class Losses:
    """How often each cell was running when its node or its worker was lost."""

    _count: Counter[str] = field(default_factory=Counter)

    def after(self, batch: Progress) -> tuple[list[Cell], Cell | None]:
        """The cells of a lost batch to run elsewhere, and one that is given up.

        The cell that was running is the one to blame; where none had begun, the first is.
        """
        left = batch.left
        if not left:
            return [], None
        blamed = next((cell for cell in left if cell.id == batch.running), left[0])
        self._count[blamed.id] += 1
        if self._count[blamed.id] < MOST_LOSSES:
            return left, None
        return [cell for cell in left if cell is not blamed], blamed
