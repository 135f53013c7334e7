"""requirements.txt and the output of ``pip freeze``.

Follows pip's format: continued lines, comments, ``-r`` and ``-c``, options, hashes, extras,
markers, requirements by URL and editable ones.  Options that only say where to look change no
version and are passed over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trl_compat.errors import BadInput
from trl_compat.sources.files import text_of
from trl_compat.sources.source import HOW_TO_PIN, Pins, Source

NESTED = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s*=?\s*)(?P<file>.+)")
EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=?\s*)(?P<what>.+)")
# Named by hand in few requirement files and in every freeze: dependencies of TRL's dependencies.
SIGNS_OF_A_FREEZE = ("huggingface-hub", "safetensors", "numpy", "torch", "transformers")


def read(path: Path) -> Source:
    """The requirements of a file and of the files that it names."""
    return parse(text_of(path), str(path), path)


def parse(text: str, name: str, path: Path | None = None) -> Source:
    """The requirements in a text; ``path`` is what ``-r`` and ``-c`` are relative to.

    Raises:
        BadInput: a line that pip would not read, a contradiction, or a package under test without
            an exact origin.
    """
    pins = Pins(name)
    _lines(text, pins, path or Path("-"), ())
    exact = not pins.ranges or set(pins.ranges) <= {*pins.versions, *pins.commits}
    complete = exact and all(p in pins.versions or p in pins.commits for p in SIGNS_OF_A_FREEZE)
    return pins.source("requirements", path=path, complete=complete)


def _lines(text: str, pins: Pins, path: Path, way: tuple[Path, ...]) -> None:
    for number, line in _logical(text):
        where = f"{path}:{number}" if path.name != "-" else f"{pins.name}:{number}"
        nested, editable = NESTED.fullmatch(line), EDITABLE.fullmatch(line)
        if nested:
            inner = path.parent / nested["file"].strip("\"' ")
            if inner in (path, *way):
                continue  # pip reads a file that names itself once, too
            if "://" in nested["file"]:
                raise BadInput(f"{where}: {nested['file']} is not a local file; fetch it first")
            _lines(text_of(inner, f"{where}: "), pins, inner, (*way, path))
        elif editable:
            _editable(editable["what"].strip("\"' "), pins)
        elif line.startswith("-"):
            continue
        else:
            _requirement(line, pins, where)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments, continued lines joined."""
    started, parts = 0, list[str]()
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        started = started or number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            parts.append(raw[:-1])
            continue
        line = re.sub(r"(^|\s+)#.*$", "", " ".join([*parts, raw])).strip()
        if line:
            yield started, line
        started, parts = 0, []


def _requirement(line: str, pins: Pins, where: str) -> None:
    text = re.split(r"\s+--(?:hash|config-settings?|global-option|install-option)\b", line)[0]
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        _bare(text, pins, where)
        return
    if requirement.marker and not _applies(requirement.marker):
        return
    name = requirement.name
    if requirement.url:
        _url(canonicalize_name(name), requirement.url, pins)
        return
    exact = [s for s in requirement.specifier if s.operator in ("==", "===")]
    exact = [s for s in exact if not s.version.endswith(".*")]
    for pin in exact:
        pins.exact(name, pin.version)
    if not exact or len(requirement.specifier) > len(exact):
        pins.wanted(name, str(requirement.specifier))


def _applies(marker: Marker) -> bool:
    return marker.evaluate({"extra": ""})


def _url(name: str, url: str, pins: Pins) -> None:
    if url.startswith("git+"):
        plain = url.partition("#")[0]
        scheme, _, rest = plain.partition("://")
        # An '@' before the first '/' is a user (git@github.com), a later one the revision.
        head, slash, tail = rest.partition("/")
        tail, _, revision = tail.partition("@")
        pins.git(name, f"{scheme}://{head}{slash}{tail}", revision or None)
    elif re.match(r"(?:hg|svn|bzr)\+", url):
        pins.undecided(name, f"{name} comes from {url}, which is not git")
    else:
        pins.archive(name, url)


def _bare(text: str, pins: Pins, where: str) -> None:
    """A requirement without a name: a path or a URL of a file."""
    if re.match(r"[\w+]+://|\.{0,2}/|[A-Za-z]:\\", text) or text.endswith((".whl", ".tar.gz")):
        url = shlex.split(text)[0]
        egg = re.search(r"[#&]egg=([\w.-]+)", url)
        file = url.partition("#")[0].rpartition("/")[2]
        if egg:
            _url(canonicalize_name(egg[1]), url, pins)
        elif file.endswith((".whl", ".tar.gz")) and "-" in file:
            cut = file.removesuffix(".tar.gz")
            guess = cut.split("-")[0] if file.endswith(".whl") else cut.rpartition("-")[0]
            pins.archive(canonicalize_name(guess), url)
        else:
            pins.note(f"{where}: '{url}' names no package and was left out")
        return
    raise BadInput(f"{where}: '{text}' is not a requirement; {HOW_TO_PIN}")


def _editable(what: str, pins: Pins) -> None:
    egg = re.search(r"[#&]egg=([\w.-]+)", what)
    named = re.match(r"([\w.-]+)\s*@\s*(\S+)", what)
    if named and not what.startswith(("git+", "file:", ".", "/")):
        _url(canonicalize_name(named[1]), named[2], pins)
    elif egg:
        _url(canonicalize_name(egg[1]), what, pins)
    elif what.startswith("git+"):
        pins.note(f"'-e {what}' names no package and was left out")
    else:
        name = canonicalize_name(Path(what).name)
        pins.undecided(name, f"{name} comes from the folder {what}, of which no commit is known")
