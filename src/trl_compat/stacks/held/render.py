"""What is held, and what is removed, as text and as data."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from trl_compat.stacks.held.inventory import Inventory, Kind, Thing
from trl_compat.stacks.held.pruning import Removal

# Kinds of which only the sum is of interest.
SUMMED = (Kind.TOOLS, Kind.WHEEL, Kind.CLONE, Kind.LOCK, Kind.BYTECODE, Kind.DAMAGED)


def size(count: int) -> str:
    """Bytes for people: ``3.2 GB``, ``41 MB``, ``0 MB``."""
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"


def counted(things: Sequence[object], singular: str) -> str:
    """``1 environment``, ``2 environments``."""
    return f"{len(things)} {singular}{'s' * (len(things) != 1)}"


def lines(held: Inventory, now: float) -> Iterator[str]:
    """What is held by what."""
    environments = held.of(Kind.ENVIRONMENT)
    if environments:
        yield f"{counted(environments, 'environment')} in {held.root / 'environments'}"
        yield "  own: free when it is removed; shared: other environments or uv's cache have it too"
        width = max(len(thing.stack) for thing in environments)
        yield f"  {'stack':{width}}  {'lock':8}  {'own':>8}  {'shared':>8}  last used"
        for thing in sorted(environments, key=lambda one: -(one.used or 0)):
            sizes = f"{size(thing.size.own):>8}  {size(thing.size.shared):>8}"
            yield f"  {thing.stack:{width}}  {thing.lock[:8]}  {sizes}  {_ago(thing.used, now)}"
    if held.builds:
        yield f"{counted(held.builds, 'build')} of torch in them, with all that belongs to it"
        for one in held.builds:
            yield f"  torch {one.version:14}{size(one.size):>8}  {', '.join(one.stacks)}"
    for kind in SUMMED:
        if things := held.of(kind):
            count = f"{len(things)} {kind.plural}" if len(things) > 1 else kind.plural
            own, shared = (sum(getattr(t.size, n) for t in things) for n in ("own", "shared"))
            yield f"{count}: {size(own)} own" + (f", {size(shared)} shared" if shared else "")
    if held.uv is not None:
        shared, own = held.uv.size.shared, held.uv.size.own
        yield f"uv's cache, {held.uv.folder}: {size(own)} own, {size(shared)} shared"
    others = held.of(Kind.OTHER)
    if others:
        yield "Not recognized, and left alone:"
        yield from (f"  {thing.path}: {thing.problem}" for thing in others)
    yield f"Total: {size(held.total)}, each file counted once"


def document(held: Inventory) -> dict[str, Any]:
    """The same for programs."""
    return {
        "root": str(held.root),
        "total": held.total,
        "environments": [
            {
                "stack": thing.stack,
                "path": str(thing.path),
                "lock_sha256": thing.lock,
                "last_used": _date(thing.used),
                **_sizes(thing),
            }
            for thing in held.of(Kind.ENVIRONMENT)
        ],
        "torch": [
            {"version": one.version, "size": one.size, "stacks": list(one.stacks)}
            for one in held.builds
        ],
        **{
            str(kind): [{"path": str(t.path), **_sizes(t)} for t in held.of(kind)]
            for kind in SUMMED
        },
        "uv": None
        if held.uv is None
        else {
            "path": str(held.uv.folder),
            "own": held.uv.size.own,
            "shared": held.uv.size.shared,
            "torch": [
                {"name": wheel.name, "version": wheel.version, "size": wheel.size}
                for wheel in held.uv.wheels
            ],
        },
        "not_recognized": [
            {"path": str(t.path), "problem": t.problem, **_sizes(t)} for t in held.of(Kind.OTHER)
        ],
    }


def removals(found: Sequence[Removal]) -> list[dict[str, Any]]:
    """What is removed, for programs."""
    return [
        {
            "what": one.what,
            "why": one.why,
            "freed": one.freed,
            "paths": [str(path) for path in one.paths],
        }
        for one in found
    ]


def _sizes(thing: Thing) -> dict[str, int]:
    return {"own": thing.size.own, "shared": thing.size.shared}


def _date(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(timespec="seconds")


def _ago(moment: float | None, now: float) -> str:
    if moment is None:
        return "never"
    days = (now - moment) / 86400
    if days < 1:
        return f"{max(0, days * 24):.0f} h ago"
    return f"{days:.0f} days ago" if days >= 1.5 else "1 day ago"
