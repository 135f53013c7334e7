"""A replay as Markdown: the answer first, then a table of the days, then what is not explained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trl_compat.refresh.comparison import words
from trl_compat.refresh.days import Release
from trl_compat.refresh.replay import Account, Flag, Totals
from trl_compat.text.markdown import code, inline


def render(told: Sequence[Account], totals: Totals, span: str, about: str) -> str:
    """The text.

    Args:
        span: the days that were asked for.
        about: how it was run: the held packages, the failures, the models.
    """
    return "\n".join(_lines(told, totals, span, about)) + "\n"


def _lines(told: Sequence[Account], totals: Totals, span: str, about: str) -> Iterator[str]:
    yield f"# What refresh would have flagged, {span}"
    yield ""
    yield about
    yield ""
    yield from _summary(told, totals)
    yield ""
    yield "| day | moved | what it flags | what the advisories know of it |"
    yield "| --- | --- | --- | --- |"
    for one in told:
        yield f"| {one.day.date} | {_moved(one)} | {_flags(one)} | {_afterwards(one)} |"
    yield from _missed(told)
    yield from _not_explained(told)


def _summary(told: Sequence[Account], totals: Totals) -> Iterator[str]:
    yield (
        f"- {totals.days} days with a release; {totals.stacks} stacks run and compared "
        f"({totals.cells} cells)."
    )
    if idle := sum(not one.day.moved for one in told):
        yield f"- On {idle} days nothing moved that is not held."
    if waiting := sum(bool(one.day.moved) and one.compared is None for one in told):
        yield f"- **Not run yet: {waiting} days; the same command goes on.**"
    if totals.breaking:
        yield (
            f"- {totals.breaking} of them brought a failure that the advisories know; "
            f"{totals.caught} of these were flagged on their first day."
        )
    else:
        yield "- None of them brought a failure that the advisories know."
    mended = sum(bool(one.mended) for one in told)
    yield f"- {mended} mended one, or removed what could fail."
    yield f"- {totals.discoveries} were flagged for something that no advisory explains (below)."
    yield f"- {totals.false} were flagged falsely: gone at the next stack, though no suspect moved."
    yield f"- {totals.not_installable} could not be installed."


def _moved(one: Account) -> str:
    if not one.day.moved:
        return f"nothing ({_names(one.day.released) or 'yanked: ' + _names(one.day.yanked)})"
    also = [r for r in one.day.released if r not in one.day.moved]
    said = f"**{_names(one.day.moved)}**" + (f", also {_names(also)}" if also else "")
    return said + (f"; yanked since: {_names(one.day.yanked)}" if one.day.yanked else "")


def _names(releases: Sequence[Release]) -> str:
    return ", ".join(inline(str(release)) for release in releases)


def _flags(one: Account) -> str:
    if one.compared is None:
        return "—" if not one.day.moved else "not run"
    if one.compared.not_installable:
        return f"❌ cannot be installed: {inline(one.compared.not_installable)}"
    if not one.flags:
        better = [cell for cell in one.compared.cells if not cell.change.bad]
        kinds = sorted({f"{code(c.after.failure)} {c.change}" for c in better})
        return "nothing" + (f"; {', '.join(kinds)}" if kinds else "")
    return "<br>".join(dict.fromkeys(map(_flag, one.flags)))


def _flag(flag: Flag) -> str:
    cell = flag.cell.after
    sign = "(false)" if flag.false else "❌"
    known = f" as {code(flag.cell.known_as)}" if flag.cell.known_as else ""
    suspect = f", first suspect {code(flag.suspected)}" if flag.suspected else ""
    return f"{sign} {code(cell.failure)} {inline(cell.variant)} {flag.cell.change}{known}{suspect}"


def _afterwards(one: Account) -> str:
    if one.compared is None:
        return "—"
    said = [f"brings {code(f)}{_caught(f, one)}" for f in one.introduced]
    said += [f"mends or removes {code(failure)}" for failure in one.mended]
    unknown = [flag for flag in one.flags if not flag.explained]
    if unknown:
        ends = {_ended(flag) for flag in unknown}
        said.append(f"no advisory begins here; {'; '.join(sorted(ends))}")
    return "<br>".join(said) or "nothing"


def _caught(failure: str, one: Account) -> str:
    return " (flagged)" if failure in one.caught else " (**not flagged**)"


def _ended(flag: Flag) -> str:
    if flag.ended is None:
        return "it is still so on the last day"
    return f"gone on {flag.ended.date} with {_names(flag.ended.moved)}"


def _missed(told: Sequence[Account]) -> Iterator[str]:
    rows = [(one, failure, why) for one in told for failure, why in one.missed]
    if rows:
        yield ""
        yield "## Not flagged, and why"
        yield ""
        for one, failure, why in rows:
            yield f"- {one.day.date} ({_names(one.day.moved)}), {code(failure)}: {inline(why)}"


def _not_explained(told: Sequence[Account]) -> Iterator[str]:
    found = [(one, flag) for one in told for flag in one.flags if not flag.explained]
    if not found:
        return
    yield ""
    yield "## Flagged, and explained by no advisory"
    for one, flag in found:
        cell = flag.cell.after
        yield ""
        yield (
            f"- {one.day.date} ({_names(one.day.moved)}), {code(cell.failure)} "
            f"{inline(cell.variant)}: before it {inline(words(flag.cell.before))}; "
            f"now {inline(words(cell))}. {_ended(flag).capitalize()}."
        )
        if cell.signature is not None:
            yield f"  {code(cell.signature.message[:200] or cell.signature.exception)}"
        yield f"  {code(cell.command)}"
