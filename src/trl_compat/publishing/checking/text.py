"""A check of the records as text: contradictions, then edges that nobody has run, then edits."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator, Sequence

from trl_compat.advisories import Advisory, Catalogue
from trl_compat.packages import PACKAGES
from trl_compat.publishing.checking.check import Checked
from trl_compat.publishing.checking.contradictions import Contradiction
from trl_compat.publishing.checking.edges import Edge
from trl_compat.publishing.checking.evidence import Evidence
from trl_compat.shipped.releases import Releases
from trl_compat.stacks.stack_lines import written

MOST = 3  # of the commands of one contradiction


def lines(
    found: Sequence[Checked], catalogue: Catalogue, releases: Releases, *, every: bool = False
) -> Iterator[str]:
    """What there is to say.

    Args:
        every: also the edges that no executed cell comes near to.
    """
    for one in found:
        yield from _contradictions(one)
    for one in found:
        yield from _edges(one, catalogue[one.failure], releases, every=every)
    yield conclusion(found)


def conclusion(found: Sequence[Checked]) -> str:
    """The counts."""
    edges = [edge for one in found for edge in one.edges]
    proven = sum(edge.proven for edge in edges)
    wrong = sum(len(one.contradictions) for one in found)
    edits = sum(len(one.edits) for one in found)
    return (
        f"{len(found)} records: {wrong} contradictions; {proven} of {len(edges)} edges executed on "
        f"both sides; {edits} edits proposed"
    )


def _contradictions(one: Checked) -> Iterator[str]:
    reasons = {refused.contradiction.key: refused.why for refused in one.refused}
    for contradiction in one.contradictions:
        yield _heading(contradiction)
        for cell in contradiction.evidence[:MOST]:
            yield f"    {cell.cell.command}"
        if (more := len(contradiction.evidence) - MOST) > 0:
            yield f"    and {more} more cells"
        if why := reasons.get(contradiction.key):
            yield f"  no edit is proposed: {why}"


def _heading(one: Contradiction) -> str:
    cells = ", ".join(
        dict.fromkeys(f"{e.cell.failure} {e.cell.variant} {e.cell.model}" for e in one.evidence)
    )
    versions = one.evidence[0].stack
    named = " ".join(f"{p} {getattr(versions, p)}" for p in PACKAGES if getattr(versions, p))
    return f"contradiction: {one.failure}, {one.place}: {one.text}: {one.stack} ({named}): {cells}"


def _edges(one: Checked, advisory: Advisory, releases: Releases, *, every: bool) -> Iterator[str]:
    near = [edge for edge in one.open if edge.seen_inside is not None]
    for edge in near:
        yield f"edge: {one.failure}, affected {edge.scope}: {_edge(edge)}"
        yield f"    {command(edge, advisory, releases)}"
    far = [edge for edge in one.open if edge.seen_inside is None]
    if far and not every:
        scopes = sorted({edge.scope for edge in far})
        numbers = ", ".join(map(str, scopes))
        yield (
            f"edges: {one.failure}, affected {numbers}: {len(far)} edges, and no executed cell "
            "fails in these scopes (--all lists them)"
        )
    for edge in far if every else ():
        yield f"edge: {one.failure}, affected {edge.scope}: {_edge(edge)}"
        yield f"    {command(edge, advisory, releases)}"


def _edge(edge: Edge) -> str:
    last = "last" if edge.upper else "first"
    inside = _seen(edge.seen_inside, edge.package, "fails", str(edge.inner))
    outside = edge.not_there or _seen(edge.seen_outside, edge.package, "does not", str(edge.outer))
    return (
        f"{edge.package} {edge.inner} is the {last} affected release, {edge.outer} is not; "
        f"executed: {inside}; {outside}"
    )


def _seen(one: Evidence | None, package: str, what: str, edge: str) -> str:
    if one is None:
        return f"no cell that {what}"
    version = one.version(package)
    nearest = "" if str(version) == edge else "nearest "
    return f"{nearest}{version} {what} ({one.cell.stack})"


def command(edge: Edge, advisory: Advisory, releases: Releases) -> str:
    """What to run to prove an edge: a bisection between the nearest cells, or a stack to add."""
    inner, outer = edge.seen_inside, edge.seen_outside
    if inner is None:
        return f"{_add(edge, advisory, releases)}{_with_conditions(edge, advisory)}"
    if edge.not_there:
        return _add(edge, advisory, releases)
    good = outer.version(edge.package) if outer else edge.outer
    words = ["trl-compat", "bisect", inner.cell.failure, "--package", edge.package]
    words += ["--good", str(good), "--bad", str(inner.version(edge.package))]
    words += ["--stack", inner.cell.stack, "--variant", inner.cell.variant]
    if inner.cell.failure != advisory.id:
        words += ["--outcome", f"masked:{advisory.id}"]
    elif len(advisory.symptoms) > 1:
        words += ["--outcome", f"reproduced:{inner.shows}"]
    if outer is not None and outer.shows:
        words += ["--good-outcome", f"reproduced:{outer.shows}"]
    return shlex.join(words)


def _add(edge: Edge, advisory: Advisory, releases: Releases) -> str:
    """The stack that would prove the inner side: the nearest one with the release in its place."""
    base = edge.seen_inside or edge.seen_outside
    if base is None:
        ranges = advisory.affected[edge.scope - 1].versions
        others = ", ".join(f"{p} {r}" for p, r in ranges.items() if p != edge.package)
        return f"add a stack with {edge.package} {edge.inner}{others and f' and {others}'}"
    day = datetime.date.fromisoformat(releases.dates[edge.package][str(edge.inner)])
    moved = {edge.package: str(edge.inner), "as_of": max(base.stack.as_of, day)}
    name = f"{base.cell.stack}-{edge.package}-{edge.inner}"
    return f"add {name}: {written(base.stack.model_copy(update=moved))}"


def _with_conditions(edge: Edge, advisory: Advisory) -> str:
    conditions = advisory.affected[edge.scope - 1].conditions.items()
    told = ", ".join(f"{name} {_values(value)}" for name, value in conditions)
    return f", and a cell with {told}" if told else ""


def _values(value: object) -> str:
    return " or ".join(map(str, value)) if isinstance(value, tuple) else str(value)
