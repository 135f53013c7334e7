"""Version ranges as events (introduced, fixed, last affected), as in other formats."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat.ranges import inside
from trl_compat.shipped.releases import Releases


@dataclass(frozen=True)
class Events:
    """A run of releases: from ``introduced`` up to, without, ``fixed``, or up to ``last_affected``.

    ``introduced`` is ``"0"`` where there is no lower end; without an upper end the others are None.
    """

    introduced: str
    fixed: str | None = None
    last_affected: str | None = None

    def as_osv(self) -> list[dict[str, str]]:
        """The events in the order of the OSV format."""
        later = {"fixed": self.fixed, "last_affected": self.last_affected}
        return [{"introduced": self.introduced}, *({k: v} for k, v in later.items() if v)]


def events(package: str, range_: str, releases: Releases) -> list[Events]:
    """The runs of releases in a range, oldest first; more than one where it leaves some out.

    The end of a run is ``fixed`` where the range says so (``<``), ``last_affected`` where it names
    the last release itself (``<=``, ``==``).
    """
    wanted = SpecifierSet(range_)
    found: list[Events] = []
    start: Version | None = None
    previous: Version | None = None
    known = releases.of(package)
    for version in known:
        if inside(version, range_):
            start = start or version
        elif start is not None:
            found.append(_run(start, previous, version, wanted, known[0]))
            start = None
        previous = version
    if start is not None:
        found.append(_run(start, previous, None, wanted, known[0]))
    return found


def _run(
    start: Version,
    last: Version | None,
    after: Version | None,
    range_: SpecifierSet,
    oldest: Version,
) -> Events:
    introduced = str(start)
    if start == oldest and not any(s.operator in (">=", ">", "==", "~=") for s in range_):
        introduced = "0"
    ends = [s for s in range_ if s.operator == "<"]
    if after is not None and any(not inside(after, str(s)) for s in ends):
        return Events(introduced, fixed=str(after))
    if after is None and is_open(range_):
        return Events(introduced)
    return Events(introduced, last_affected=str(last))


def is_open(range_: SpecifierSet | str) -> bool:
    """Whether a range has no upper end."""
    specifiers = SpecifierSet(range_) if isinstance(range_, str) else range_
    return not any(s.operator in ("<", "<=", "==", "===", "~=") for s in specifiers)
