"""requirements.txt and the output of ``pip freeze``.

Follows pip's format: continued lines, comments, ``-r`` and ``-c``, options, hashes, extras,
markers, requirements by URL and editable ones.  Options that only name indexes change no version
and are ignored.  Lines are never quoted: a wrong file may contain a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.packages import PACKAGES
from trl_compat.stacks.sources import markers
from trl_compat.stacks.sources.source import Pins, Source, shown

NESTED = ("-r", "-c", "--requirement", "--constraint")
EDITABLE = ("-e", "--editable")
# Options of one requirement, which stand behind it.
BEHIND = ("--hash", "--config-setting", "--config-settings", "--global-option", "--install-option")
# In every freeze with TRL, and hardly ever all of them named by hand: what torch, transformers and
# datasets require, and what these require.
SIGNS_OF_A_FREEZE = (
    *("torch", "transformers", "accelerate", "datasets", "huggingface-hub", "safetensors"),
    *("tokenizers", "numpy", "pyyaml", "packaging", "multiprocess", "xxhash", "filelock"),
)
LONGEST = 4000  # characters of a requirement without its hashes
MOST = 5000  # requirements, with those of the files that are named
MOST_FILES = 100

EXAMPLE = "write requirements in the format of pip freeze, e.g. trl==1.16.0"


def read(path: Path) -> Source:
    """The requirements of a file and of the files that it names."""
    return _source(_Reader(str(path)), reading.text_of(path), path)


def parse(text: str, name: str) -> Source:
    """The requirements in a text.

    Raises:
        BadInput: a line that pip would not read, a contradiction, or a package under test without
            an exact origin.
    """
    return _source(_Reader(name), text, None)


def _source(reader: _Reader, text: str, path: Path | None) -> Source:
    pins = reader.pins
    reader.lines(text, path)
    exact = not pins.ranges or set(pins.ranges) <= {*pins.versions, *pins.commits}
    complete = exact and all(p in pins.versions or p in pins.commits for p in SIGNS_OF_A_FREEZE)
    return pins.source("requirements", path=path, complete=complete)


class _Reader:
    """Reads a file and those that it names, each of them once."""

    def __init__(self, name: str) -> None:
        self.pins = Pins(name)
        self.seen: set[str] = set()
        self.count = 0

    def lines(self, text: str, path: Path | None) -> None:
        """The lines of a file; of a text without a file if there is no path."""
        todo = [(text, path)]
        if path is not None:
            self.seen.add(os.path.realpath(path))
        while todo:
            text, path = todo.pop()
            for number, line in _logical(text):
                where = f"{path or self.pins.name}:{number}"
                self.count += 1
                if self.count > MOST:
                    raise BadInput(f"{where}: more than {MOST} requirements")
                inner = self._line(line, path, where)
                if inner is not None:
                    todo.append((reading.text_of(inner, f"{where}: "), inner))

    def _line(self, line: str, path: Path | None, where: str) -> Path | None:
        """Reads a line; the file that it names, if that was not read before."""
        if (named := _value(line, NESTED)) is not None:
            return self._named(named, path, where)
        if (what := _value(line, EDITABLE)) is not None:
            _editable(what, self.pins, where)
        elif not line.startswith("-"):
            _requirement(line, self.pins, where)
        return None

    def _named(self, named: str, path: Path | None, where: str) -> Path | None:
        if "://" in named:
            raise BadInput(f"{where}: refers to a file by URL; download it first")
        inner = (path.parent if path else Path()) / named
        real = os.path.realpath(inner)
        if real in self.seen:
            return None  # a file that names itself is read once by pip, too
        self.seen.add(real)
        if len(self.seen) > MOST_FILES:
            raise BadInput(f"{where}: more than {MOST_FILES} files that include each other")
        return inner


def _value(line: str, options: tuple[str, ...]) -> str | None:
    """What follows one of some options: ``-r x``, ``-rx``, ``--requirement=x``; None for others."""
    for option in options:
        rest = line.removeprefix(option)
        if rest == line:
            continue
        if option.startswith("--") and rest[:1] not in ("=", " ", "\t"):
            continue
        value = rest.strip().removeprefix("=").strip().strip("\"' ")
        return value or None
    return None


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments, continued lines joined."""
    started, parts = 0, list[str]()
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        if not raw and not parts:
            continue
        started = started or number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            parts.append(raw[:-1])
            continue
        line = _without_comment(" ".join([*parts, raw])).strip()
        if line:
            yield started, line
        started, parts = 0, []


def _without_comment(line: str) -> str:
    """A '#' begins a comment at the start of a line and behind a blank, not within a URL."""
    at = line.find("#")
    while at > 0 and not line[at - 1].isspace():
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at]


def _requirement(line: str, pins: Pins, where: str) -> None:
    text = _without_options(line)
    if len(text) > LONGEST:
        raise BadInput(f"{where}: a line of {len(text)} characters is not a requirement; {EXAMPLE}")
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        _bare(text, pins, where)
        return
    name = requirement.name
    if requirement.marker and not markers.applies(str(requirement.marker), where):
        pins.not_here(name)
        return
    if requirement.url:
        _url(canonicalize_name(name), requirement.url, pins)
        return
    exact = [s for s in requirement.specifier if s.operator in ("==", "===")]
    exact = [s for s in exact if not s.version.endswith(".*")]
    for pin in exact:
        pins.exact(name, pin.version)
    if not exact or len(requirement.specifier) > len(exact):
        pins.wanted(name, str(requirement.specifier))


def _without_options(line: str) -> str:
    if "--" not in line:
        return line
    words = line.split()
    kept = []
    for word in words:
        if word.partition("=")[0] in BEHIND:
            break
        kept.append(word)
    return line if len(kept) == len(words) else " ".join(kept)


def _url(name: str, url: str, pins: Pins) -> None:
    if url.startswith("git+"):
        plain = url.partition("#")[0]
        scheme, _, rest = plain.partition("://")
        # An '@' before the first '/' is a user (git@github.com), a later one the revision.
        head, slash, tail = rest.partition("/")
        tail, _, revision = tail.partition("@")
        pins.git(name, f"{scheme}://{head}{slash}{tail}", revision or None)
    elif url.startswith(("hg+", "svn+", "bzr+")):
        pins.undecided(name, f"{name} comes from {shown(url)}, which is not a git URL")
    else:
        pins.archive(name, url)


ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2")
NAMED_PATH = re.compile(r"[\w+]{1,40}://|\.{0,2}/|[A-Za-z]:\\")


def _bare(text: str, pins: Pins, where: str) -> None:
    """A requirement without a name: a path or a URL of a file."""
    if NAMED_PATH.match(text) or text.endswith(ARCHIVES):
        url = text.partition(" ")[0].strip("\"'")
        name = _egg(url) or _repository(url)
        file = url.partition("#")[0].rpartition("/")[2]
        if name is not None:
            _url(name, url, pins)
        elif file.endswith((".whl", ".tar.gz")) and "-" in file:
            cut = file.removesuffix(".tar.gz")
            guess = cut.split("-")[0] if file.endswith(".whl") else cut.rpartition("-")[0]
            pins.archive(canonicalize_name(guess), url)
        else:
            pins.unnamed(f"{where}: a path or URL without a package name was ignored", url)
        return
    hint = ""
    name, equals, _ = text.partition("=")
    if equals and canonicalize_name(name.strip()) in PACKAGES:
        hint = f" of {name.strip()}"
    raise BadInput(f"{where}: this line is not a requirement{hint}; {EXAMPLE}")


def _egg(url: str) -> str | None:
    """The package that a URL names in its fragment."""
    for part in re.split("[#&]", url)[1:]:
        key, _, value = part.partition("=")
        if key == "egg" and (name := re.match(r"[\w.-]+", value)):
            return canonicalize_name(name[0])
    return None


def _repository(url: str) -> str | None:
    """The package under test whose repository a git URL names."""
    if not url.startswith("git+"):
        return None
    path = url.partition("#")[0].partition("://")[2].partition("/")[2].partition("@")[0]
    name = path.rstrip("/").rpartition("/")[2].removesuffix(".git")
    found = {"pytorch": "torch"}.get(name.lower(), canonicalize_name(name))
    return found if found in PACKAGES else None


def _editable(what: str, pins: Pins, where: str) -> None:
    named = re.match(r"([\w.-]{1,200})\s*@\s*(\S+)", what[:LONGEST])
    egg = _egg(what) or _repository(what)
    if named and not what.startswith(("git+", "file:", ".", "/")):
        _url(canonicalize_name(named[1]), named[2], pins)
    elif egg is not None:
        _url(egg, what, pins)
    elif what.startswith("git+"):
        pins.unnamed(f"{where}: an editable requirement without a package name was ignored", what)
    else:
        name = canonicalize_name(Path(what.partition("[")[0]).name)
        pins.undecided(name, f"{name} comes from the folder {shown(what)}, whose commit is unknown")
