"""uv.lock: one file for all platforms, so the packages for this one are found by walking it.

The walk starts at the projects in the lock and follows every dependency whose marker applies to
this Python and platform.  Extras and groups are followed, too: if they are installed, the lock
gives the version.  If extras exclude each other, the installed version depends on the choice, and a
package that differs is rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.stacks.sources import markers
from trl_compat.stacks.sources.source import Pins, Source

Entry = dict[str, Any]
MOST_VERSIONS = 100  # of one package in one lock
EXPORT = "choose one with: uv export --extra NAME > requirements.txt, and check that file"


def read(path: Path, data: dict[str, Any]) -> Source:
    """The packages of the lock that apply here.

    Raises:
        BadInput: a lock of an unknown version, or one that decides a package two ways.
    """
    if data.get("version") != 1:
        raise BadInput(f"{path}: not a uv.lock of version 1, the only supported version")
    entries: list[Entry] = data.get("package", [])
    if not all(isinstance(entry.get("name"), str) for entry in entries):
        raise BadInput(f"{path}: a package without name; lock again: uv lock")
    pins = Pins(str(path))
    pins.made_for(data.get("requires-python", ""))
    reached = _Walk(entries, path).reached(_roots(data, entries))
    for entry in entries:
        if id(entry) in reached:
            _pin(entry, pins)
        else:
            pins.not_here(entry["name"])
    return pins.source("uv.lock", path=path)


def _roots(data: Entry, entries: list[Entry]) -> list[Entry]:
    """What the projects in the lock depend on; all packages of a lock that has none."""
    manifest = data.get("manifest", {})
    todo = [edge for entry in entries if _is_project(entry) for edge in _edges(entry)]
    todo += [*manifest.get("requirements", ()), *manifest.get("overrides", ())]
    todo += [e for group in manifest.get("dependency-groups", {}).values() for e in group]
    return todo or [{**entry, "marker": None, "extra": ()} for entry in entries]


class _Walk:
    """Goes along every dependency whose marker holds here.

    A package under test that only an extra brings comes last: one version of it is its version.
    """

    def __init__(self, entries: list[Entry], path: Path) -> None:
        self.path = path
        self.by_name: dict[str, list[Entry]] = {}
        for entry in entries:
            self.by_name.setdefault(entry["name"], []).append(entry)
        # By entry, with which of its extras.
        self.seen: set[tuple[int, str]] = set()
        self.names: set[str] = set()

    def reached(self, todo: list[Entry]) -> set[int]:
        """The identities of the entries that the edges lead to."""
        by_extra: set[str] = set()
        while todo or by_extra:
            if not todo:
                name = by_extra.pop()
                todo = [] if name in self.names else [{"name": name}]
                continue
            edge = todo.pop()
            if self._applies(edge.get("marker")):
                todo.extend(self._follow(edge))
            elif "extra" in edge["marker"] and edge["name"] in PACKAGES:
                by_extra.add(edge["name"])
        return {number for number, _ in self.seen}

    def _follow(self, edge: Entry) -> list[Entry]:
        choice = self.by_name.get(edge["name"], [])
        if len(choice) > MOST_VERSIONS:
            raise BadInput(f"{self.path}: a package occurs {len(choice)} times; lock again")
        found = [entry for entry in choice if _is_meant(edge, entry)]
        if len(found) > 1 and edge["name"] in PACKAGES:
            versions = " and ".join(sorted(str(e.get("version"))[:40] for e in found))
            raise BadInput(f"{self.path}: two versions of {edge['name']}, {versions}; {EXPORT}")
        more: list[Entry] = []
        for entry in found:
            self.names.add(entry["name"])
            # What an extra adds counts, too, where the package itself was met before.
            for extra in ("", *edge.get("extra", ())):
                if (id(entry), extra) not in self.seen:
                    self.seen.add((id(entry), extra))
                    more += _edges(entry, [extra]) if extra else entry.get("dependencies", ())
        return more

    def _applies(self, marker: str | None) -> bool:
        return marker is None or markers.applies(marker, str(self.path))


def _is_project(entry: Entry) -> bool:
    return bool({"virtual", "editable"} & set(entry.get("source", {})))


def _edges(entry: Entry, extras: list[str] | None = None) -> list[Entry]:
    """What an entry depends on with some of its extras; of a project with all, and its groups."""
    edges = [] if extras is not None else list(entry.get("dependencies", ()))
    optional: dict[str, list[Entry]] = entry.get("optional-dependencies", {})
    for name, more in optional.items():
        if extras is None or name in extras:
            edges += more
    if extras is None:
        edges += [e for group in entry.get("dev-dependencies", {}).values() for e in group]
    return edges


def _is_meant(edge: Entry, entry: Entry) -> bool:
    return all(edge.get(key) in (None, entry.get(key)) for key in ("version", "source"))


def _pin(entry: Entry, pins: Pins) -> None:
    name, source = entry["name"], entry.get("source", {})
    if "git" in source:
        url, _, commit = source["git"].partition("#")
        pins.git(name, url.partition("?")[0], commit)
    elif {"directory", "editable", "virtual"} & set(source):
        if not _is_project(entry) or name in PACKAGES:
            pins.undecided(name, f"{name} comes from a folder whose commit is unknown")
    elif isinstance(entry.get("version"), str):
        pins.exact(name, entry["version"])
    elif "url" in source:
        pins.archive(name, source["url"])
