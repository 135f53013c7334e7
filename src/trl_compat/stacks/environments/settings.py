"""The indexes that uv uses: pip's settings, applied where uv's own are not set.

uv does not read pip's configuration.  On a machine whose pip uses a mirror, or a CPU build of torch
in a folder, uv would otherwise resolve something else than the user's pip.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# pip's setting → the variables by which uv can be told the same, the first of which we would set.
CARRIED = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", "UV_INDEX"),
    "find-links": ("UV_FIND_LINKS",),
}
UV_FILE_KEYS = {
    "index-url": ("index-url", "index"),
    "extra-index-url": ("extra-index-url", "index"),
    "find-links": ("find-links",),
}


def pip_settings(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """pip's index settings: configuration files first, environment variables over them."""
    found: dict[str, list[str]] = {}
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue  # pip itself complains about it; it is no reason for us to stop
        for section in ("global", "install"):
            for name in CARRIED:
                if parser.has_option(section, name):
                    found[name] = parser.get(section, name).split()
    for name in CARRIED:
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value.split()
    return found


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to add so that uv looks where pip would.

    pip takes the best version from all indexes alike, hence the index strategy.
    """
    set_in_file = _uv_file_keys(environ)
    added: dict[str, str] = {}
    for name, values in pip_settings(environ).items():
        if any(environ.get(variable) for variable in CARRIED[name]):
            continue
        if any(key in set_in_file for key in UV_FILE_KEYS[name]):
            continue
        separator = "," if name == "find-links" else " "
        added[CARRIED[name][0]] = separator.join(_absolute(value) for value in values)
    if "UV_EXTRA_INDEX_URL" in added and not environ.get("UV_INDEX_STRATEGY"):
        added["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return added


def effective(environ: Mapping[str, str]) -> dict[str, str]:
    """Where uv looks in the end, whether told by its own variables or by pip's settings."""
    all_of_it = {**environ, **uv_environment(environ)}
    names = sorted({name for variables in CARRIED.values() for name in variables})
    return {name: all_of_it[name] for name in names if all_of_it.get(name)}


def index_urls(environ: Mapping[str, str]) -> list[str]:
    """The addresses of all indexes, with the credentials that are in them."""
    told = effective(environ)
    words = [word for name in told if name != "UV_FIND_LINKS" for word in told[name].split()]
    words += _uv_file_indexes(environ)
    # uv's own variable may name an index: ``name=url``.
    return [re.sub(r"^[\w.-]+=(?=\w+://)", "", word) for word in words if "://" in word]


def link_mode(environ: Mapping[str, str]) -> str:
    """How uv installs files by its configuration files; empty if they say nothing."""
    told = [data["link-mode"] for data in _uv_files(environ) if data.get("link-mode")]
    return str(told[-1]) if told else ""


def _absolute(value: str) -> str:
    return value if "://" in value else str(Path(value).expanduser().resolve())


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    chosen = environ.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = Path(environ.get("HOME", "~")).expanduser()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        config / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
    ]
    return files + ([Path(chosen)] if chosen else [])


def _uv_files(environ: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    home = Path(environ.get("HOME", "~")).expanduser()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    for path in (Path("/etc/uv/uv.toml"), config / "uv" / "uv.toml"):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
        pip = data.get("pip")
        yield {**data, **(pip if isinstance(pip, dict) else {})}


def _uv_file_keys(environ: Mapping[str, str]) -> set[str]:
    return {key for data in _uv_files(environ) for key in data}


def _uv_file_indexes(environ: Mapping[str, str]) -> list[str]:
    found: list[Any] = []
    for data in _uv_files(environ):
        found += [data.get("index-url"), *(data.get("extra-index-url") or ())]
        found += [index.get("url") for index in data.get("index", ()) if isinstance(index, dict)]
    return [url for url in found if isinstance(url, str)]
