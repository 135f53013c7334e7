"""Stacks drawn at random from the shipped releases, to measure what no file of the project names.

A drawn stack is one that a user could have had: TRL with releases of the other packages of the
months before a day, that its requirements allow.  The same seed and the same builds of torch give
the same stacks.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Collection, Iterator, Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from trl_compat.errors import BadInput
from trl_compat.shipped import releases, requires
from trl_compat.stacks.environments import cache
from trl_compat.stacks.matrix import Stack

OLDEST_TRL = Version("0.9.4")
# A user has not the newest release of everything, but seldom one that is older than this.
DAYS = 120
PYTHON = "3.11"
ATTEMPTS = 200


def held_torches() -> list[Version]:
    """The releases of torch of which the cache holds a build, oldest first."""
    infos = cache.folder("environments").glob("*/lib/python*/site-packages/torch-*.dist-info")
    found = {Version(path.name.split("-")[1].removesuffix(".dist")).public for path in infos}
    return sorted(Version(version) for version in found)


def draw(count: int, seed: int, torches: Collection[Version]) -> dict[str, Stack]:
    """So many different stacks by name, out of these releases of torch.

    Raises:
        BadInput: there is no release of torch, or there are fewer different stacks.
    """
    if not torches:
        raise BadInput(
            "the cache holds no build of torch to draw stacks for; run nox -s matrix once, or name "
            "releases with --torch"
        )
    chance = random.Random(seed)
    found: dict[str, Stack] = {}
    for _ in range(ATTEMPTS * count):
        if len(found) == count:
            break
        stack = _drawn(chance, torches)
        if stack is not None:
            parts = (stack.trl, stack.transformers, stack.deepspeed, stack.torch)
            found.setdefault("drawn-" + "-".join(parts), stack)
    if len(found) < count:
        raise BadInput(f"only {len(found)} different stacks were found; ask for fewer")
    return found


def _drawn(chance: random.Random, torches: Collection[Version]) -> Stack | None:
    known = releases.known()
    trl = chance.choice([v for v in known.final("trl") if v >= OLDEST_TRL])
    day = _day("trl", trl) + datetime.timedelta(chance.randrange(60))
    last = datetime.date.fromisoformat(known.as_of)
    earliest = min(_day("torch", version) for version in torches)
    day = min(max(day, earliest), last)
    versions = {"trl": trl, "torch": max(v for v in torches if _day("torch", v) <= day)}
    for package in ("transformers", "deepspeed", "accelerate", "peft"):
        allowed = list(_allowed(package, day, versions))
        recent = [v for v in allowed if _day(package, v) >= day - datetime.timedelta(DAYS)]
        if not allowed:
            return None
        newest = package in ("accelerate", "peft")
        versions[package] = allowed[-1] if newest or not recent else chance.choice(recent)
    if not _fits("trl", trl, {"python": Version(PYTHON)}):
        return None
    pins = {package: str(version) for package, version in versions.items()}
    return Stack.model_validate({"as_of": day, "python": PYTHON, **pins})


def _day(package: str, version: Version) -> datetime.date:
    return datetime.date.fromisoformat(releases.known().dates[package][str(version)])


def _allowed(package: str, day: datetime.date, chosen: Mapping[str, Version]) -> Iterator[Version]:
    """The final releases of a package until a day that fit what is chosen, both ways."""
    for version in releases.known().final(package):
        if _day(package, version) > day:
            continue
        with_it = {**chosen, package: version}
        if all(_fits(name, release, with_it) for name, release in with_it.items()):
            yield version


def _fits(package: str, version: Version, others: Mapping[str, Version]) -> bool:
    """Whether what a release requires of the packages under test allows others."""
    wanted = requires.known().get(package, {}).get(str(version), {})
    return all(
        SpecifierSet(range_).contains(others[name], prereleases=True)
        for name, range_ in wanted.items()
        if name in others
    )
