"""Goes on inside an edge between two releases, over the commits of the package's repository.

The stacks around the commits are that of the edge, so that again only one package moves.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from packaging.version import Version

from trl_compat.bisect import history
from trl_compat.bisect.ahead import Ahead
from trl_compat.bisect.answer import Answer
from trl_compat.bisect.around import Around, named
from trl_compat.bisect.axis import AxisSearch
from trl_compat.bisect.candidates import Span
from trl_compat.bisect.cell_runs import Seen
from trl_compat.bisect.history import History, OneCommit
from trl_compat.bisect.search import Side
from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.stacks.environments import git_sources


def source(package: str, clone: Path | None) -> History:
    """The history of a package; asked for before anything runs.

    Raises:
        BadInput: its repository is not known, or the clone is none.
    """
    found = history.of(package)
    if clone is not None:
        git_sources.seed(found.url, clone)
    return found


def search(releases: AxisSearch, found: History, builder: Ahead) -> Answer:
    """The edge between the commits of two releases.

    Args:
        releases: the search whose edge is known.
        found: the repository of its package.
        builder: builds environments ahead.

    Raises:
        BadInput: the clone lacks what is needed, or the releases' commits do not show what the
            releases show.
    """
    package, shared = releases.span.package, releases.shared
    good, bad = releases.proven
    sides = {Side.GOOD: good, Side.BAD: bad}
    older, newer = sorted(sides, key=lambda side: _version(sides[side], package))
    tips = {side: found.release(getattr(seen.stack, package)) for side, seen in sides.items()}
    later = max(sides.values(), key=lambda seen: seen.stack.as_of)

    def stack(commit: str) -> Around:
        versions = {p: getattr(later.stack, p) for p in PACKAGES}
        versions[package] = f"git+{found.url}@{commit}"
        day: datetime.date = later.stack.as_of
        return named(later.stack, versions, day, f"{package}-git-{commit[:9]}", shared.table)

    start = found.parting(tips[older], tips[newer])
    notes = []
    begins = older
    if start != tips[older]:
        # The older release lies on a branch of its own: on which side was the change made?
        one = stack(start)
        seen = shared.runs.seen(one.name, one.stack)
        shared.log.add("parting", commit=start, side=str(seen.side))
        shared.say(f"{package} {start[:9]}, where both releases' branches part: {seen.side}")
        if seen.side is Side.UNJUDGED:
            raise BadInput(
                f"--commits: {start[:9]}, where the branches of both releases part, cannot be "
                f"judged ({seen.verdict.outcome}: {seen.verdict.reason})"
            )
        begins = seen.side
        notes.append(f"both releases' branches part at {start[:9]}, which is {seen.side}")
    ends = newer if begins is older else older
    path = found.path(start, tips[ends])
    if begins is Side.BAD:
        path.reverse()
    span = Span(package, tuple(commit.name for commit in path))
    stacks = [stack(commit.name) for commit in path]
    shared.say(f"{len(path)} commits from {path[0].name[:9]} to {path[-1].name[:9]}")
    by_name = {commit.name: commit for commit in path}
    dates = {name: commit.date for name, commit in by_name.items()}
    inner = AxisSearch(shared, span, stacks, builder, notes, dates.__getitem__)
    answer = inner.answer()
    told = [
        _subject(by_name[place.version], span.versions.index(place.version), len(path))
        for place in (answer.good, answer.bad)
    ]
    return answer.model_copy(update={"notes": (*answer.notes, *told)})


def _version(seen: Seen, package: str) -> Version:
    return Version(getattr(seen.stack, package))


def _subject(commit: OneCommit, place: int, of: int) -> str:
    return f"{commit.name[:9]} ({place + 1} of {of}): {commit.subject}"
