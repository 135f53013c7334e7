"""From a grid to its rows: exact versions, the day, and a name, the same on every machine.

What the requirements among the packages exclude stays a row: the resolver refuses it, and that is a
result.  Rows with the same versions are one.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from trl_compat.errors import BadInput
from trl_compat.files.names import LONGEST_OF_STACK, STACK_NAME
from trl_compat.packages import PACKAGES
from trl_compat.shipped import releases, requires
from trl_compat.stacks.grids import sampling
from trl_compat.stacks.grids.rules import NoSuchRelease, Point, Row, Shelf, points
from trl_compat.stacks.grids.schema import Grid, Sample

IN_A_NAME = ("trl", "transformers", "deepspeed")
ALSO_IN_A_NAME = ("torch", "accelerate", "peft", "python", "as_of")


@dataclass(frozen=True)
class GridStack:
    """A stack that a grid means: its versions, in the order of the fields."""

    trl: str
    transformers: str
    deepspeed: str
    torch: str
    accelerate: str
    peft: str
    python: str
    as_of: datetime.date


@dataclass(frozen=True)
class Expansion:
    """What a grid means.

    Attributes:
        stacks: its distinct stacks, in order.
        combinations: how many the full product of its axes has.
        left_out: how many rows each exclude has taken away, by its reason.
        list_as_of: the day of the list of releases that the rules read.
    """

    stacks: tuple[GridStack, ...]
    combinations: int
    left_out: Mapping[str, int]
    list_as_of: str


def expand(grid: Grid) -> Expansion:
    """The stacks of a grid, from the shipped lists.

    Raises:
        BadInput: a rule means no release, or the grid is too large; names no file and no grid.
    """
    return _expanded(grid.model_dump_json())


@cache
def _expanded(text: str) -> Expansion:
    return expanded(Grid.model_validate_json(text), Shelf(releases.known(), requires.known()))


def expanded(grid: Grid, shelf: Shelf) -> Expansion:
    """The stacks of a grid, from other lists than the shipped ones.

    Raises:
        BadInput: see :func:`expand`.
    """
    values: dict[str, list[Point]] = {}
    for package, rules in grid.axes.named.items():
        try:
            values[package] = points(package, rules, shelf)
        except NoSuchRelease as error:
            raise BadInput(f"axis {package}: {error}") from None
    sizes = tuple(len(found) for found in values.values())
    if refused := sampling.refusal(sizes, grid.sample, grid.seed):
        raise BadInput(refused)
    places = sampling.rows(sizes, grid.sample, grid.seed, _base(grid, values, shelf))
    made: dict[sampling.Place, Row] = {}

    def row_at(place: sampling.Place) -> Row:
        if place not in made:
            wanted = {p: found[at] for at, (p, found) in zip(place, values.items(), strict=True)}
            made[place] = Row(shelf, wanted)
        return made[place]

    def reason(place: sampling.Place) -> str | None:
        versions = row_at(place).versions
        return next((e.reason for e in grid.excludes if e.covers(versions)), None)

    try:
        left_out = Counter(why for place in places if (why := reason(place)))
        if left_out:
            places = sampling.without(
                places, sizes, grid.sample.strength, lambda place: reason(place) is not None
            )
        stacks = dict.fromkeys(_stack(row_at(place), grid, shelf) for place in places)
    except NoSuchRelease as error:
        raise BadInput(str(error)) from None
    if not stacks:
        raise BadInput("its excludes leave no stack")
    product = sampling.size(sizes, Sample.FULL)
    return Expansion(tuple(stacks), product, dict(left_out), shelf.releases.as_of)


def _base(grid: Grid, values: Mapping[str, Sequence[Point]], shelf: Shelf) -> sampling.Place:
    """The place of the base on each axis.

    Raises:
        BadInput: the axis has no such value, or the rule means several.
    """
    base = []
    for package, found in values.items():
        place = 0
        if package in grid.base:
            rule = grid.base[package]
            try:
                wanted = points(package, [rule], shelf)
            except NoSuchRelease as error:
                raise BadInput(f"base: {package}: {error}") from None
            if len(wanted) != 1:
                raise BadInput(f"base: {package}: '{rule.text}' means {len(wanted)} releases")
            same = [at for at, one in enumerate(found) if _same(one, wanted[0])]
            if not same:
                raise BadInput(f"base: {package}: '{rule.text}' is not a value of the axis")
            place = same[0]
        base.append(place)
    return tuple(base)


def _same(one: Point, other: Point) -> bool:
    return one.version == other.version if one.version or other.version else one == other


def _stack(row: Row, grid: Grid, shelf: Shelf) -> GridStack:
    after = row.newest_day + datetime.timedelta(days=grid.days_after)
    return GridStack(
        **{package: str(row.versions[package]) for package in PACKAGES},
        python=grid.python or row.python,
        as_of=grid.as_of or min(after, shelf.today),
    )


def names(stacks: Sequence[GridStack]) -> dict[str, GridStack]:
    """A name for each distinct stack: its versions, no more parts than tell it from the others."""
    by_name: dict[str, list[GridStack]] = {}
    for stack in dict.fromkeys(stacks):
        by_name.setdefault(_name(stack, IN_A_NAME), []).append(stack)
    found = {}
    for alike in by_name.values():
        parts = list(IN_A_NAME)
        for part in ALSO_IN_A_NAME:
            if len({_name(stack, parts) for stack in alike}) == len(alike):
                break
            if len({getattr(stack, part) for stack in alike}) > 1:
                parts.append(part)
        found.update({stack: _name(stack, parts) for stack in alike})
    return {found[stack]: stack for stack in dict.fromkeys(stacks)}


def _name(stack: GridStack, parts: Sequence[str]) -> str:
    words = (f"{part.replace('_', '-')}-{getattr(stack, part)}" for part in parts)
    whole = f"grid-{'-'.join(words)}"
    if STACK_NAME.fullmatch(whole):
        return whole
    # Too long for the names of files: a digest says the rest.
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    start = re.sub("[^a-z0-9.+-]", "-", whole.lower())[: LONGEST_OF_STACK - len(digest) - 1]
    return f"{start.rstrip('.+-')}-{digest}"
