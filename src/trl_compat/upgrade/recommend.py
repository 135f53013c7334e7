"""Releases that avoid a failure and bring no other one.

Doctor, gate, ``fix`` and ``constraints`` use this module.  Its recommendations were checked,
release by release, against all advisories, the releases' requirements, and publication dates (see
:mod:`.safety`); a recommended range ends where the check ends.  Packages that must change together
are named together.  If no release qualifies, the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from packaging.version import Version

from trl_compat.matching.applies import covers
from trl_compat.packages import PACKAGES
from trl_compat.ranges import inside
from trl_compat.shipped import requires
from trl_compat.shipped.records import CompiledAdvisory, CompiledWorkaround, Where
from trl_compat.stacks.sources.source import Source
from trl_compat.upgrade.safety import Problem, Safety
from trl_compat.upgrade.spans import Span
from trl_compat.upgrade.targets import Targets
from trl_compat.upgrade.versions import State
from trl_compat.usage.conditions import Named

MOST = 2  # packages that are moved together; who needs more wants a plan


@dataclass(frozen=True)
class Change:
    """One package goes to a release, the nearest of those that were checked.

    Attributes:
        to: the nearest.
        end: the farthest; all between are as good.
        back: whether it goes to earlier releases.
        newest: whether the end is the newest release that is known.
    """

    package: str
    to: Version
    end: Version
    back: bool = False
    newest: bool = False

    @property
    def releases(self) -> str:
        """``0.16.0 or later, up to 0.17.0``."""
        if self.to == self.end:
            return f"{self.to}, the newest known release" if self.newest else str(self.to)
        way, limit = ("earlier", "down to") if self.back else ("later", "up to")
        newest = ", the newest known release" if self.newest else ""
        return f"{self.to} or {way}, {limit} {self.end}{newest}"

    @property
    def specifier(self) -> str:
        """The same as a range."""
        low, high = sorted((self.to, self.end))
        return f"=={low}" if low == high else f">={low},<={high}"


@dataclass(frozen=True)
class Way:
    """A way out by other releases.

    Attributes:
        changes: what moves, what the failure is of first.
        because: why one alone is not enough; empty if it is.
        note: what the record says of it.
        unchecked: packages that may be there in a release that is not known.
    """

    changes: tuple[Change, ...]
    because: str = ""
    note: str = ""
    unchecked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What to do, as a sentence or two."""
        first, *others = self.changes
        with_ = "".join(f", together with {c.package} to {c.releases}" for c in others)
        verb = "Take" if first.back else "Upgrade"
        what = f"{first.package} {first.releases}"
        if not first.back:
            what = f"{first.package} to {first.releases}"
        why = f" (alone: {self.because})" if self.because else ""
        known = ""
        if self.unchecked:
            known = (
                f" Not checked: failures that depend on the release of {', '.join(self.unchecked)}."
            )
        return f"{verb} {what}{with_}{why}.{self.note and ' ' + self.note}{known}"


@dataclass(frozen=True)
class Ways:
    """All ways out of a failure by other releases; ``none`` says why there is none."""

    ways: tuple[Way, ...]
    none: str = ""


class Adviser:
    """Gives advice on one environment; one for all its failures, as the answers share work.

    Args:
        source: what one has; packages whose version it does not know are left as they are.
        named: the conditions that the user named.
    """

    def __init__(
        self, records: Mapping[str, CompiledAdvisory], source: Source, named: Named
    ) -> None:
        self._records, self._source, self._named = records, source, named

    @cached_property
    def _safety(self) -> Safety:
        return Safety(self._records, requires.known(), self._source, self._named)

    @cached_property
    def _start(self) -> State:
        found = {p: self._source.version(p) for p in PACKAGES}
        return {p: Version(v.public) for p, v in found.items() if v is not None}

    @cached_property
    def _later(self) -> dict[str, list[Span]]:
        return {p: list(self._safety.spans.after(p, v)) for p, v in self._start.items()}

    @cached_property
    def _targets(self) -> Targets:
        nearest = {package: [span[0] for span in spans] for package, spans in self._later.items()}
        return Targets(self._safety, self._start, nearest)

    def ways(self, record: CompiledAdvisory) -> Ways:
        """The ways out of a failure of the records, the smallest first."""
        forward = list(self._forward(record))
        back = list(self._back(record))
        from_git = list(self._from_git(record))
        unknown = tuple(p for p in PACKAGES if self._unknown(p))
        found = tuple(replace(way, unchecked=unknown) for way in (*forward, *from_git, *back))
        return Ways(found, "" if found else self._none(record))

    def _unknown(self, package: str) -> bool:
        known = package in self._start or self._source.commit(package) is not None
        return not known and not self._source.absent(package)

    def _forward(self, record: CompiledAdvisory) -> Iterator[Way]:
        able = [package for package in packages_of(record) if package in self._start]
        for size in range(1, MOST + 1):
            found = False
            for packages in self._targets.subsets(size):
                if not set(packages) & set(able):
                    continue
                way = self._nearest(record, packages)
                if way is not None:
                    found = True
                    yield way
            if found:
                return

    def _nearest(self, record: CompiledAdvisory, packages: tuple[str, ...]) -> Way | None:
        """The nearest way that moves just these packages."""
        first = next(p for p in packages_of(record) if p in packages)
        ends = [end for end in self._targets.moving(packages) if self._mended(record, end)]
        if not ends:
            return None
        end = min(ends, key=lambda e: tuple(e[p] for p in (first, *packages)))
        others = tuple(self._exact(p, end[p]) for p in packages if p != first)
        fixed = {**end, **{change.package: change.to for change in others}}
        change = self._as_far_as_safe(record, first, fixed, self._later[first])
        alone = {**self._start, first: end[first]}
        because = _told(self._safety.problems(self._start, alone)) if others else ""
        return Way((change, *others), because, _note(record, [first]))

    def _exact(self, package: str, version: Version) -> Change:
        """The newest release of a span: what comes along is best as mature as can be."""
        span = next(s for s in self._later[package] if s[0] == version)
        newest = span[-1] == self._safety.spans.newest(package)
        return Change(package, span[-1], span[-1], newest=newest)

    def _as_far_as_safe(
        self, record: CompiledAdvisory, package: str, state: State, spans: Iterable[Span]
    ) -> Change:
        """From the nearest release on, every next one that is as good."""
        start = end = state[package]
        back = start < self._start.get(package, start)
        for span in (s for s in spans if (s[-1] <= start if back else s[0] >= start)):
            then = {**state, package: span[0]}
            if any(self._safety.problems(self._start, then)) or not self._mended(record, then):
                break
            end = span[0] if back else span[-1]
        return Change(
            package, start, end, back=back, newest=end == self._safety.spans.newest(package)
        )

    def _back(self, record: CompiledAdvisory) -> Iterator[Way]:
        """The earlier releases that the record names as a way out."""
        for way in record.avoid:
            if len(way.pin) != 1:
                continue
            ((package, range_),) = way.pin.items()
            current = self._start.get(package)
            if current is None or inside(current, range_):
                continue
            spans = list(self._safety.spans.before(package, current))
            pinned = [span for span in spans if inside(span[-1], range_)]
            for span in pinned:
                then = {**self._start, package: span[-1]}
                if self._mended(record, then) and not any(self._safety.problems(self._start, then)):
                    reach = takewhile(pinned.__contains__, spans[spans.index(span) :])
                    yield Way((self._as_far_as_safe(record, package, then, reach),), note=way.note)
                    break

    def _from_git(self, record: CompiledAdvisory) -> Iterator[Way]:
        """A release in place of a commit: the first that the record names as a way out."""
        for way in record.avoid:
            if len(way.upgrade) != 1:
                continue
            ((package, range_),) = way.upgrade.items()
            if self._source.commit(package) is None:
                continue
            spans = list(self._safety.spans.after(package, Version("0")))
            for span in spans:
                then = {**self._start, package: span[0]}
                safe = inside(span[0], range_) and self._mended(record, then)
                if safe and not any(self._safety.problems(self._start, then)):
                    change = self._as_far_as_safe(record, package, then, spans)
                    yield Way((change,), note=way.note)
                    break

    def _mended(self, record: CompiledAdvisory, state: State) -> bool:
        """Whether a set of versions does not have the failure, but has what could fail."""
        for package, range_ in record.available.items():
            if package in state and not inside(state[package], range_):
                return False
        if self._safety.matches(record.id, state):
            return False
        return all(
            seen_right(record, package, version)
            for package, version in state.items()
            if self._start.get(package) != version
        )

    def _none(self, record: CompiledAdvisory) -> str:
        """Why no release is a way out, as far as the nearest that would mend it tells."""
        reasons = []
        for package in packages_of(record):
            for span in self._later.get(package, ()):
                then = {**self._start, package: span[0]}
                if self._mended(record, then):
                    it = f"{package} {span[0]}"
                    problems = self._safety.problems(self._start, then)
                    told = (f"brings {p.text}" if p.failure else p.text for p in problems)
                    reasons.append(f"{it} {', '.join(t.removeprefix(it).strip() for t in told)}")
                    break
        if not reasons:
            return "No later release fixes it."
        return f"No upgrade that fixes it is safe here: {'; '.join(reasons)}."


def packages_of(record: CompiledAdvisory) -> tuple[str, ...]:
    """The packages of which another release may mend a failure, the best first.

    Where a record says which, it is those: a range of another package may end where another failure
    comes first.
    """
    named = [p for way in record.avoid for p in (*way.upgrade, *way.pin)]
    ranged = [p for block in record.blocks for p in block.where.versions]
    return tuple(dict.fromkeys(p for p in named or ranged if p in PACKAGES))


def seen_right(record: CompiledAdvisory, package: str, version: Version) -> bool:
    """Whether a release is one that the record speaks of.

    Where it says from which release on a package is right, what lies between that and the releases
    that are wrong is not known; what it examined under other conditions is.
    """
    named = [{**way.upgrade, **way.pin} for way in record.avoid]
    ways = [ranges[package] for ranges in named if package in ranges]
    blocks = [b.where.versions[package] for b in record.blocks if package in b.where.versions]
    return not ways or any(inside(version, range_) for range_ in (*ways, *blocks))


def _note(record: CompiledAdvisory, packages: Iterable[str]) -> str:
    notes = (way.note for way in record.avoid if set(way.upgrade) & set(packages))
    return " ".join(filter(None, notes))


def _told(problems: Iterable[Problem]) -> str:
    return "; ".join(problem.text for problem in problems)


def options(record: CompiledAdvisory, source: Source) -> Iterator[CompiledWorkaround]:
    """The options that avoid a failure in the releases at hand."""
    yield from (w for w in record.avoid if w.option and covers(Where(w.versions, {}), source))
