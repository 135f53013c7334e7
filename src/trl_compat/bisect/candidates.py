"""The releases between two ends, from the shipped list or the index; pure but for the index."""

from __future__ import annotations

import dataclasses
import json
import urllib.request
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.shipped import releases
from trl_compat.shipped.releases import INDEX, Releases
from trl_compat.text.nearest import nearest, unknown_name


@dataclass(frozen=True)
class Span:
    """The final releases from one end to the other, both included, the good end first."""

    package: str
    versions: tuple[str, ...]

    @property
    def words(self) -> str:
        """In words."""
        return f"{self.package} {self.versions[0]} to {self.versions[-1]}"


def require_package(package: str) -> str:
    """The name of a package under test.

    Raises:
        BadInput: it is none.
    """
    if package not in PACKAGES:
        raise BadInput(unknown_name("package", package, PACKAGES))
    return package


def release(package: str, text: str, known: Releases, option: str) -> Version:
    """A final release that an installer can take.

    Raises:
        BadInput: it is none; says why, with the nearest release.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        alike = nearest(text, known.dates.get(package, {}))
        hint = f"; did you mean {alike[0]}?" if alike else ""
        raise BadInput(f"{option} {text[:100]}: not a version{hint}") from None
    if version.local:
        raise BadInput(f"{option} {text}: name the release without '+{version.local}'")
    listed = known.of(package)
    if listed and version > listed[-1]:
        raise BadInput(
            f"{option} {text}: newer than {package} {listed[-1]}, the newest release in the list "
            f"(as of {known.as_of}); to ask the package index, add --index"
        )
    if doubt := known.doubt(package, version):
        near = _final_neighbours(package, version, known)
        hint = "" if "did you mean" in doubt else f"; nearest final releases: {near}"
        raise BadInput(f"{option} {text}: {doubt}{hint}")
    if version.is_prerelease:
        near = _final_neighbours(package, version, known)
        raise BadInput(f"{option} {text}: a pre-release; nearest final releases: {near}")
    return version


def _final_neighbours(package: str, version: Version, known: Releases) -> str:
    final = known.final(package)
    before = [v for v in final if v < version][-1:]
    after = [v for v in final if v > version][:1]
    return " and ".join(str(v) for v in (*before, *after))


def span(package: str, good: str, bad: str, known: Releases) -> Span:
    """The releases between two ends.

    Raises:
        BadInput: an end is no release, or they are the same.
    """
    first = release(package, good, known, "--good")
    last = release(package, bad, known, "--bad")
    if first == last:
        raise BadInput(f"--good and --bad are both {package} {first}: there is nothing between")
    low, high = min(first, last), max(first, last)
    found = [str(v) for v in known.final(package) if low <= v <= high]
    return Span(package, tuple(found if first < last else reversed(found)))


def from_index(package: str) -> Releases:
    """The shipped list, with the releases of one package as the package index has them now.

    Raises:
        BadInput: it cannot be read.
    """
    address = INDEX.format(package=package)
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            listed = json.load(answer)["releases"]
        found = {str(Version(v)): files for v, files in listed.items() if files}
        dates = {v: min(f["upload_time"] for f in files)[:10] for v, files in found.items()}
        gone = {
            v: next((f["yanked_reason"] for f in files if f.get("yanked_reason")), "")
            for v, files in found.items()
            if all(f.get("yanked") for f in files)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{address}: cannot be read ({error}); without --index the shipped list is used"
        ) from None
    shipped = releases.known()
    return dataclasses.replace(
        shipped,
        dates={**shipped.dates, package: dates},
        yanked={**shipped.yanked, package: gone},
    )
