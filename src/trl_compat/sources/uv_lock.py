"""uv.lock: one file for every platform, so what applies here is found by walking it.

From the projects in the lock along every dependency whose marker holds for this Python and
platform.  Extras and groups are walked, too: where they are installed, the lock says the version.
Where extras exclude each other, what is installed depends on the choice, and a package that differs
is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker

from trl_compat.errors import BadInput
from trl_compat.packages import PACKAGES
from trl_compat.sources.source import Pins, Source

Entry = dict[str, Any]
EXPORT = "choose with: uv export --extra NAME > requirements.txt, and check that file"


def read(path: Path, data: dict[str, Any]) -> Source:
    """The packages of the lock that apply here.

    Raises:
        BadInput: a lock of an unknown version, or one that decides a package two ways.
    """
    if data.get("version") != 1:
        raise BadInput(f"{path}: uv.lock of version {data.get('version')!r}; version 1 is known")
    entries: list[Entry] = data.get("package", [])
    if not all(isinstance(entry.get("name"), str) for entry in entries):
        raise BadInput(f"{path}: a package without name; lock again: uv lock")
    pins = Pins(str(path))
    pins.made_for(data.get("requires-python", ""))
    for entry in _reached(data, entries, path):
        _pin(entry, pins)
    return pins.source("uv.lock", path=path)


def _reached(data: Entry, entries: list[Entry], path: Path) -> list[Entry]:
    """The entries that the projects lead to, here.

    A package under test that only an extra brings comes last: one version of it is its version.
    """
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry["name"], []).append(entry)
    manifest = data.get("manifest", {})
    todo = [edge for entry in entries if _is_project(entry) for edge in _edges(entry)]
    todo += [*manifest.get("requirements", ()), *manifest.get("overrides", ())]
    todo += [e for group in manifest.get("dependency-groups", {}).values() for e in group]
    if not todo:
        return entries
    reached: dict[int, Entry] = {}
    chosen_by_extra: set[str] = set()
    while todo or chosen_by_extra:
        if not todo:
            name = chosen_by_extra.pop()
            todo = [] if any(e["name"] == name for e in reached.values()) else [{"name": name}]
            continue
        edge = todo.pop()
        if not _applies(edge.get("marker"), path):
            if "extra" in edge["marker"] and edge["name"] in PACKAGES:
                chosen_by_extra.add(edge["name"])
            continue
        found = [e for e in by_name.get(edge["name"], ()) if _is_meant(edge, e)]
        if len(found) > 1 and edge["name"] in PACKAGES:
            versions = " and ".join(sorted(str(e.get("version")) for e in found))
            raise BadInput(f"{path}: two versions of {edge['name']}, {versions}; {EXPORT}")
        for entry in found:
            if id(entry) not in reached:
                reached[id(entry)] = entry
                todo.extend(_edges(entry, edge.get("extra", ())))
    return [entry for entry in entries if id(entry) in reached]


def _is_project(entry: Entry) -> bool:
    return bool({"virtual", "editable"} & set(entry.get("source", {})))


def _edges(entry: Entry, extras: list[str] | tuple[str, ...] | None = None) -> list[Entry]:
    """What an entry depends on, with some of its extras, or for a project with all and groups."""
    edges: list[Entry] = list(entry.get("dependencies", ()))
    optional: dict[str, list[Entry]] = entry.get("optional-dependencies", {})
    for name, more in optional.items():
        if extras is None or name in extras:
            edges += more
    if extras is None:
        edges += [e for group in entry.get("dev-dependencies", {}).values() for e in group]
    return edges


def _is_meant(edge: Entry, entry: Entry) -> bool:
    return all(edge.get(key) in (None, entry.get(key)) for key in ("version", "source"))


def _applies(marker: str | None, path: Path) -> bool:
    if marker is None:
        return True
    try:
        # uv writes extras that exclude each other as `extra == 'extra-<n>-<project>-<name>'`.
        return Marker(marker).evaluate({"extra": ""})
    except InvalidMarker as error:
        raise BadInput(f"{path}: {str(error).splitlines()[0]}") from None


def _pin(entry: Entry, pins: Pins) -> None:
    name, source = entry["name"], entry.get("source", {})
    if "git" in source:
        url, _, commit = source["git"].partition("#")
        pins.git(name, url.partition("?")[0], commit)
    elif {"directory", "editable", "virtual"} & set(source):
        if not _is_project(entry) or name in PACKAGES:
            pins.undecided(name, f"{name} comes from a folder, of which no commit is known")
    elif isinstance(entry.get("version"), str):
        pins.exact(name, entry["version"])
    elif "url" in source:
        pins.archive(name, source["url"])
