"""What new releases change, as Markdown for a pull request or an issue; suspects come first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trl_compat.refresh.comparison import CellDifference, Change, StackDifference, words
from trl_compat.refresh.proposal import Proposal
from trl_compat.refresh.suspects import Suspect, suspects
from trl_compat.text.markdown import code, inline

Differences = Mapping[str, StackDifference]


def render(proposal: Proposal, found: Differences, *, ran: bool, as_of: str) -> str:
    """The text: what newly fails, what can no longer be installed, what newly passes."""
    return "\n".join(_lines(proposal, found, ran=ran, as_of=as_of)) + "\n"


def headline(proposal: Proposal, found: Differences) -> str:
    """The answer in a line."""
    if not proposal.stacks:
        return "No new releases"
    broken = sum(bool(one.not_installable) for one in found.values())
    failing = len({cell.alike for one in found.values() for cell in one.flags})
    said = [f"{failing} new failure{'s' * (failing != 1)}"] * bool(failing)
    said += [f"{broken} stack{'s' * (broken != 1)} cannot be installed"] * bool(broken)
    return "New releases: " + ("; ".join(said) or "nothing newly fails")


def _lines(proposal: Proposal, found: Differences, *, ran: bool, as_of: str) -> Iterator[str]:
    yield f"## {headline(proposal, found) if ran else _only_proposed(proposal)}"
    yield ""
    yield f"Releases as of {as_of}, compared with the stack {code(proposal.base)}."
    for sentence in proposal.yanked:
        yield f"\n{inline(sentence)}; {code(proposal.base)} should no longer be the newest stack."
    if proposal.held_back:
        held = ", ".join(map(str, proposal.held_back))
        yield f"\nHeld back, so neither proposed nor run: {inline(held)}."
    if not proposal.stacks:
        return
    yield ""
    yield from _table(
        ("stack", "moved", *(["cells compared", "result"] if ran else [])),
        (
            (code(one.name), inline(", ".join(map(str, one.moved))), *_result(one.name, found))
            for one in proposal.stacks
        ),
    )
    if ran:
        yield from _differences(proposal, found)


def _only_proposed(proposal: Proposal) -> str:
    count = len(proposal.stacks)
    return f"{count} stack{'s' * (count != 1)} proposed, none run" if count else "No new releases"


def _result(name: str, found: Differences) -> tuple[str, ...]:
    if name not in found:
        return ()
    one = found[name]
    if one.not_installable:
        return "0", "❌ cannot be installed"
    flags = len(one.flags)
    return str(one.compared), f"❌ {flags} newly failing" if flags else "✅ nothing newly fails"


def _differences(proposal: Proposal, found: Differences) -> Iterator[str]:
    gone = {name: one for name, one in found.items() if one.not_installable}
    if gone:
        yield ""
        yield "### Can no longer be installed"
        yield ""
        for name, one in gone.items():
            suspects_ = ", ".join(f"{p} {a} → {b}" for p, (a, b) in one.moved.items() if a and b)
            yield f"- {code(name)} ({inline(suspects_)}): {inline(one.not_installable)}"
    for change in Change:
        groups: dict[tuple[str, ...], list[tuple[str, CellDifference]]] = {}
        for name, one in found.items():
            for cell in one.cells:
                if cell.change is change:
                    groups.setdefault(cell.alike, []).append((name, cell))
        if groups:
            yield ""
            yield f"### {change.heading}"
            yield ""
            rows = (_row(group, proposal, found) for group in groups.values())
            yield from _table(("failure", "before", "now", "advisory", "stacks", "suspects"), rows)
            if change.bad:
                yield ""
                yield from _commands(groups.values())


def _row(
    group: Sequence[tuple[str, CellDifference]], proposal: Proposal, found: Differences
) -> tuple[str, ...]:
    _, first = group[0]
    cell = first.after
    known = code(first.known_as) if first.known_as else "none knows it"
    return (
        f"{code(cell.failure)} {inline(cell.variant)}",
        inline(words(first.before)),
        inline(words(cell)),
        known if first.change.bad else "",
        ", ".join(code(name) for name, _ in group),
        "<br>".join(inline(str(one)) for one in blame(group, proposal, found)),
    )


def blame(
    group: Sequence[tuple[str, CellDifference]], proposal: Proposal, found: Differences
) -> list[Suspect]:
    """The suspects for what is seen in some stacks; what a package does alone counts most."""
    names = {name for name, _ in group}
    alone = {
        one.moved[0].package: one.name in names
        for one in proposal.stacks
        if len(one.moved) == 1 and one.name in found and not found[one.name].not_installable
    }
    # Of several new releases of a package one that does it is enough.
    for one in proposal.stacks:
        if len(one.moved) == 1 and one.name in names:
            alone[one.moved[0].package] = True
    widest = max(names, key=lambda name: len(found[name].moved))
    return suspects(group[0][1].after, found[widest].moved, alone)


def _commands(groups: Iterable[Sequence[tuple[str, CellDifference]]]) -> Iterator[str]:
    yield "Run again:"
    yield ""
    yield "```"
    for group in groups:
        yield group[0][1].after.command
    yield "```"


def _table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (tuple(head), ("---",) * len(head), *rows):
        yield "| " + " | ".join(row) + " |"
