"""Runs a bisection: over the releases of a package, and on over the commits between two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trl_compat import advisories
from trl_compat.bisect import ahead, candidates, commits, setup
from trl_compat.bisect.ahead import Ahead
from trl_compat.bisect.answer import Answer
from trl_compat.bisect.around import Around, Rules, around
from trl_compat.bisect.axis import AxisSearch
from trl_compat.bisect.bisection import Bisection, Say, open_bisection
from trl_compat.bisect.candidates import Span
from trl_compat.bisect.search import Side
from trl_compat.files.project import Project
from trl_compat.running import matrix_run
from trl_compat.shipped import releases, requires
from trl_compat.stacks import matrix


@dataclass(frozen=True, kw_only=True)
class Request(setup.CellRequest):
    """What is asked, in the user's words; see the command's options."""

    package: str
    good: str
    bad: str
    holds: tuple[str, ...] = ()
    stack: str | None = None
    index: bool = False
    commits: bool = False
    clone: Path | None = None


def run(where: Project, request: Request, options: matrix_run.Options, say: Say) -> Answer:
    """Answers a request.

    Raises:
        BadInput: something given is wrong, or a source stops answering.
        KeyboardInterrupt: the user interrupted it; what was seen is kept.
    """
    shared, span, stacks, notes = prepare(where, request, options, say)
    source = commits.source(span.package, request.clone) if request.commits else None
    with shared.resumable(), Ahead() as builder:
        others = _nearest(shared, span, stacks, request)
        search = AxisSearch(shared, span, stacks, builder, notes, others=others)
        found = search.answer()
        if source is None:
            return found
        between = commits.search(search, source, builder)
        return found.model_copy(update={"commits": between})


def prepare(
    where: Project, request: Request, options: matrix_run.Options, say: Say
) -> tuple[Bisection, Span, list[Around], list[str]]:
    """Everything that is known before anything runs: the candidates with their stacks."""
    table = matrix.load(where.matrix_file)
    catalogue = advisories.load(where.advisories, where.reproductions)
    setup.check_failure(catalogue, request.failure)
    package = candidates.require_package(request.package)
    known = candidates.from_index(package) if request.index else releases.known()
    span = candidates.span(package, request.good, request.bad, known)
    pins = setup.holds(request.holds, package, known)
    bases = [setup.base_stack(table, request.stack, span, v, known) for v in span.versions]
    rules = Rules(table, known, requires.known(), frozenset(pins), ahead.held_builds())
    stacks = [
        around(base, {**pins, package: version}, f"{package}-{version}", rules)
        for version, (_, base) in zip(span.versions, bases, strict=True)
    ]
    question = setup.question_of(
        catalogue,
        table,
        request,
        {Side.GOOD: stacks[0].stack, Side.BAD: stacks[-1].stack},
    )
    names = list(dict.fromkeys(name for name, _ in bases))
    base_name = names[0] if len(names) == 1 else f"the nearest of {len(names)} stacks"
    asked = [span, bases, pins]
    shared = open_bisection(where, table, catalogue, question, rules, asked, options, say)
    shared.log.add("began", question=question.words, span=span.words, base=base_name, holds=pins)
    pinned = "".join(f", {p}=={v}" for p, v in pins.items())
    many = f"{len(span.versions)} releases of {span.words}"
    say(f"{question.words}: {many}, around {base_name}{pinned}")
    return shared, span, stacks, [f"base stack: {base_name}{pinned}"]


def _nearest(
    shared: Bisection, span: Span, stacks: list[Around], request: Request
) -> dict[int, Around]:
    """For each release the stack with the nearest one, where the user leaves the stack open."""
    if request.stack is not None:
        return {}
    rules = shared.rules
    pins = setup.holds(request.holds, span.package, rules.releases)
    found = {}
    for position, version in enumerate(span.versions):
        _, base = setup.base_stack(rules.table, setup.NEAREST, span, version, rules.releases)
        one = around(base, {**pins, span.package: version}, f"{span.package}-{version}", rules)
        if one.name != stacks[position].name and one.stack.torch in rules.builds:
            found[position] = one
    return found
