"""Parsing the text of a lock: its entries, each with name, version or commit, and hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trl_compat.errors import BadInput
from trl_compat.stacks.matrix import GIT

HASH = re.compile(r"--hash=(\w+:\w+)")
# Kinds of hashes that pip or uv take, with the length of their digests.
DIGITS = {"md5": 32, "sha256": 64, "sha384": 96, "sha512": 128, "blake2b": 128}
HOW = "write it with: uv pip compile --generate-hashes"


@dataclass(frozen=True)
class Entry:
    """One package of a lock.

    Attributes:
        version: empty for one from git.
        url: ``git+https://...@<commit>``; empty for a release.
        marker: whether it is wanted under a condition only.
        line: where it begins in the lock, from 1.
        text: all of it, continued lines joined as they stand.
    """

    name: str
    version: str
    url: str
    hashes: tuple[str, ...]
    marker: bool
    line: int
    text: str


def packages_of(text: str) -> dict[str, str]:
    """``{name: version}`` of a lock; a git requirement has its URL as version."""
    return {entry.name: entry.version or entry.url for entry in entries(text)}


def entries(text: str) -> list[Entry]:
    """The entries of a lock; what is none is left out (see :func:`check`)."""
    return [entry for _, _, entry in _read(text) if isinstance(entry, Entry)]


def check(text: str, path: Path) -> None:
    """Refuses a text that does not say exactly which files make an environment.

    Raises:
        BadInput: with the line and what is wrong with it.
    """
    seen: dict[str, Entry] = {}
    for number, raw, entry in _read(text):
        shown = raw.split(" \\")[0].split(" --")[0][:80].strip()
        where = f"{path}:{number}: '{shown}'"
        if isinstance(entry, str):
            raise BadInput(f"{where} {entry}; {HOW}")
        if not entry.url and not entry.hashes:
            raise BadInput(f"{where} has no hash; {HOW}")
        if wrong := next((one for one in entry.hashes if not is_hash(one)), None):
            raise BadInput(f"{where}: '{wrong[:80]}' is not a hash; {HOW}")
        if entry.url and not GIT.fullmatch(entry.url):
            raise BadInput(f"{where}: only git+https://...@<commit> can be installed from a URL")
        if (other := seen.get(entry.name)) and not (entry.marker and other.marker):
            raise BadInput(f"{where}: {entry.name} is already listed in line {other.line}")
        seen[entry.name] = entry
    if not seen:
        raise BadInput(f"{path}: it contains no package; {HOW}")


def is_hash(text: str) -> bool:
    """Whether a text such as ``sha256:<digest>`` is one of a kind that can be checked."""
    kind, _, digest = text.partition(":")
    return len(digest) == DIGITS.get(kind) and re.fullmatch("[0-9a-f]+", digest) is not None


def _read(text: str) -> Iterator[tuple[int, str, Entry | str]]:
    """Line number, text and entry of each logical line; what is wrong with it if it is none."""
    started, parts = 0, list[str]()
    for number, raw in enumerate(text.removesuffix("\n").split("\n"), 1):
        line = raw.rstrip("\r")
        if not parts and (not line.strip() or line.lstrip().startswith("#")):
            continue
        started = started or number
        parts.append(line)
        if not line.endswith("\\"):
            whole = "\n".join(parts)
            yield started, whole, _entry(whole, started)
            started, parts = 0, []
    if parts:
        yield started, "\n".join(parts), "ends with an incomplete line"


def _entry(whole: str, line: int) -> Entry | str:
    joined = re.sub(r"\\\n", " ", whole).strip()
    if joined.startswith("-"):
        return "is an option; configure indexes in the settings of pip or uv"
    said = re.sub(r"\s+#.*$", "", joined)
    try:
        requirement = Requirement(re.split(r"\s+--", said)[0])
    except InvalidRequirement:
        return "is not a requirement such as name==1.0 with a hash"
    exact = [one.version for one in requirement.specifier if one.operator in ("==", "===")]
    if not requirement.url and (len(requirement.specifier) != 1 or not exact or "*" in exact[0]):
        return "is not pinned to one version"
    if requirement.extras:
        return "names extras; a lock lists them as separate packages"
    return Entry(
        name=str(canonicalize_name(requirement.name)),
        version=exact[0] if exact else "",
        url=requirement.url or "",
        hashes=tuple(HASH.findall(said)),
        marker=requirement.marker is not None,
        line=line,
        text=whole + "\n",
    )
