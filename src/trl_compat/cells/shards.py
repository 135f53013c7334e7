"""Shards: the cells of a selection, divided among several machines.

Shard K of N depends on the selection and on the seconds that the package ships, on nothing else:
machines that have the same commit and are given the same options agree without talking to each
other, and each cell is in exactly one shard.

The cells of a stack stay together, because each machine that has cells of a stack builds its
environment and imports its packages.  A stack is divided only where that makes the longest shard
shorter.  What is never divided are the cells of a failure with one model: they need their control.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trl_compat.cells.plan import Cell, CellPlan
from trl_compat.errors import BadInput
from trl_compat.shipped.seconds import Seconds

# What a stack costs a machine beside its cells: building its environment, importing its packages.
STACK_SECONDS = 60
# Cells move to another shard if that makes the longer of the two shorter by at least this share.
WORTH_IT = 0.05
SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")

Group = tuple[str, str, str, int]  # stack, failure, model, world size


@dataclass(frozen=True)
class Shard:
    """Shard ``number`` of ``count``; the first is 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that a user means by ``K/N``.

        Raises:
            BadInput: it is no such shard.
        """
        match = SHARD.fullmatch(text)
        if match is None:
            raise BadInput(f"--shard {text}: not of the form K/N, for example 1/4")
        number, count = map(int, match.groups())
        if not 1 <= number <= count:
            among = f"the shards are 1/{count} to {count}/{count}" if count else "there are none"
            raise BadInput(f"--shard {text}: no such shard; {among}")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass
class Share:
    """What one shard has: groups of cells with their milliseconds, by stack."""

    stacks: dict[str, dict[Group, int]] = field(default_factory=dict)

    @property
    def load(self) -> int:
        """Its milliseconds."""
        cells = sum(sum(groups.values()) for groups in self.stacks.values())
        return cells + len(self.stacks) * STACK_SECONDS * 1_000


def part(planned: CellPlan, shard: Shard, seconds: Seconds) -> CellPlan:
    """The cells of a plan that are in one shard, in the plan's order.

    What the matrix leaves out is said by every shard.
    """
    share = shares(planned.cells, shard.count, seconds)[shard.number - 1]
    mine = {group for groups in share.stacks.values() for group in groups}
    return planned.model_copy(update={"cells": [c for c in planned.cells if _group(c) in mine]})


def sentence(planned: CellPlan, shard: Shard, seconds: Seconds) -> str:
    """What a shard has of a plan, for people."""
    divided = shares(planned.cells, shard.count, seconds)
    mine = part(planned, shard, seconds).cells
    if not mine:
        filled = sum(bool(share.stacks) for share in divided)
        return f"shard {shard} has no cells: the selection fills {filled} of {shard.count} shards"
    loads = [_minutes(share.load) for share in divided]
    return (
        f"shard {shard}: {len(mine)} of {len(planned.cells)} cells, "
        f"{len({c.stack for c in mine})} of {len({c.stack for c in planned.cells})} stacks; "
        f"about {loads[shard.number - 1]} min on one worker (the longest shard {max(loads)} min)"
    )


def _minutes(milliseconds: int) -> int:
    return max(1, round(milliseconds / 60_000))


def shares(cells: Sequence[Cell], count: int, seconds: Seconds) -> list[Share]:
    """The cells divided into so many shards; some are empty if there are not enough cells.

    First whole stacks, the longest first, each to the shard that has least.  Then the longest
    shard hands cells to the shortest as long as that is worth it.
    """
    stacks: dict[str, dict[Group, int]] = {}
    for cell in cells:
        took = round(1_000 * seconds.of(cell.stack, cell.failure, cell.world_size))
        groups = stacks.setdefault(cell.stack, {})
        groups[_group(cell)] = groups.get(_group(cell), 0) + took
    # More shards than groups stay empty, whatever is done.
    groups_there = sum(map(len, stacks.values()))
    found = [Share() for _ in range(min(count, max(groups_there, 1)))]
    for name in sorted(stacks, key=lambda name: (-sum(stacks[name].values()), name)):
        min(found, key=lambda share: share.load).stacks[name] = dict(stacks[name])
    while _hand_over(found):
        pass
    return found + [Share() for _ in range(count - len(found))]


def _group(cell: Cell) -> Group:
    return (cell.stack, cell.failure, cell.model, cell.world_size)


def _hand_over(shares_: Sequence[Share]) -> bool:
    """Moves cells of one stack from the longest to the shortest shard; False if none is worth it.

    Each move makes the longer of two shards shorter, so this comes to an end.
    """
    longest = max(shares_, key=lambda share: share.load)
    shortest = min(shares_, key=lambda share: share.load)
    before = longest.load
    best: tuple[int, str, list[Group]] | None = None
    for name in sorted(longest.stacks):
        moved, after = _best_part(longest, shortest, name)
        if moved and (best is None or after < best[0]):
            best = (after, name, moved)
    if best is None or best[0] > before * (1 - WORTH_IT):
        return False
    _, name, moved = best
    _move(longest, shortest, name, moved)
    return True


def _best_part(giver: Share, taker: Share, stack: str) -> tuple[list[Group], int]:
    """The groups of a stack to hand over, and the load of the longer of both shards then."""
    groups = giver.stacks[stack]
    own = STACK_SECONDS * 1_000
    given, taken = giver.load, taker.load + (0 if stack in taker.stacks else own)
    moved: list[Group] = []
    best: tuple[list[Group], int] = ([], given)
    for group, took in sorted(groups.items(), key=lambda item: (-item[1], item[0])):
        last = len(moved) + 1 == len(groups)
        after = max(given - took - (own if last else 0), taken + took)
        if after < best[1]:
            moved.append(group)
            given, taken = given - took, taken + took
            best = (list(moved), after)
    return best


def _move(giver: Share, taker: Share, stack: str, groups: Sequence[Group]) -> None:
    there = taker.stacks.setdefault(stack, {})
    for group in groups:
        there[group] = giver.stacks[stack].pop(group)
    if not giver.stacks[stack]:
        del giver.stacks[stack]
