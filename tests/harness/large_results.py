"""Results of the size that a grid has, made from the committed ones: texts as real ones are.

Each made stack has a TRL release of its own minor, versions of the other packages that differ from
those of its neighbours, and the cells of the committed stack that is nearest to it by TRL.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from packaging.version import Version

from tests.harness.conftest import ROOT
from trl_compat import results
from trl_compat.results import CellResult, Results, StackResult
from trl_compat.shipped import releases

STACKS, CELLS = 120, 10_000
GRID = "releases"


def large(stacks: int = STACKS, cells: int = CELLS) -> Results:
    """Results of so many stacks and cells; the same each time."""
    committed = results.read(ROOT / "reports" / "results.json")
    assert committed is not None
    made = dict(itertools.islice(_stacks(committed), stacks))
    per_stack = [cells // stacks + (n < cells % stacks) for n in range(stacks)]
    found = [
        cell
        for (name, (_, template)), count in zip(made.items(), per_stack, strict=True)
        for cell in _cells(committed.cells, name, template, count)
    ]
    return committed.model_copy(
        update={
            "stacks": {name: stack for name, (stack, _) in made.items()},
            "cells": found,
            "not_run": [],
            "summary": results.summary(found),
        }
    )


def _newest_of_each_minor(package: str, since: str) -> list[str]:
    newest: dict[tuple[int, ...], Version] = {}
    for version in sorted(map(Version, map(str, releases.known().final(package)))):
        if version >= Version(since):
            newest[version.release[:2]] = version
    return [str(version) for version in newest.values()]


def _stacks(committed: Results) -> Iterator[tuple[str, tuple[StackResult, str]]]:
    """Names, stacks and the committed stack that each takes its cells from, without an end."""
    trl = _newest_of_each_minor("trl", "0.9")
    others = {"transformers": "4.44", "deepspeed": "0.14", "accelerate": "0.33", "peft": "0.12"}
    newest = {name: _newest_of_each_minor(name, since) for name, since in others.items()}
    templates = {
        name: Version(stack.trl)
        for name, stack in committed.stacks.items()
        if not stack.trl.startswith("git+")
    }
    for number in itertools.count():
        turn, place = divmod(number, len(trl))
        version = Version(trl[place])
        older = [name for name, other in templates.items() if other <= version]
        template = max(older, key=templates.__getitem__)
        # As time goes by the others get newer, and each turn takes newer ones.
        at = {
            name: (place * len(known) // len(trl) + turn) % len(known)
            for name, known in newest.items()
        }
        versions = {name: newest[name][at[name]] for name in newest}
        stack = committed.stacks[template]
        name = (
            f"grid-trl-{version}-transformers-{versions['transformers']}"
            f"-deepspeed-{versions['deepspeed']}"
        )
        update = {**versions, "trl": str(version), "grid": GRID}
        yield name, (stack.model_copy(update=update), template)


def _cells(
    committed: Sequence[CellResult], name: str, template: str, count: int
) -> Iterator[CellResult]:
    mine = [cell for cell in committed if cell.stack == template]
    if len(mine) > count:  # some of every failure
        mine = [mine[number * len(mine) // count] for number in range(count)]
    for turn, cell in itertools.islice(
        ((turn, cell) for turn in itertools.count() for cell in mine), count
    ):
        ranks = cell.world_size * 2**turn
        changes = {
            "id": cell.id.replace(template, name).replace("__x2", f"__x{ranks}"),
            "stack": name,
            "world_size": ranks,
            "command": cell.command.replace(template, name),
            "log": cell.log and f"evidence/{name}.log",
            "log_line": 1 if cell.log else None,
        }
        yield cell.model_copy(update=changes)
