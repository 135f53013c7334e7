"""Files of a user as text, TOML, JSON and YAML; an unreadable file gives one sentence.

A file may come from a pull request, so it may be anything: a pipe without a writer, a device,
gigabytes, or a document that is nested a million levels deep.  Only regular files are opened, they
are read up to a limit, and documents that are too large for the parsers are rejected.  Content is
never quoted: it may be a secret.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trl_compat.errors import BadInput

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MIB = 1 << 20
LARGEST = 8 * MIB  # a lock of a thousand packages has one or two
LARGEST_CONFIG = MIB // 16  # of accelerate or DeepSpeed; they have a few thousand bytes
LARGEST_SCRIPT = MIB // 4
MOST_VALUES = 150_000  # of a TOML file; a lock has a hundred for each package
MOST_TABLES = 50_000
DEEPEST = 50  # levels of a YAML document
ALIASES = 10  # merged into one another, they multiply
KEY_PARTS = 64
# tomllib takes quadratic time for keys such as a.b.c.d, whose parts may be quoted.
_PART = r"(?>\"[^\"\n]*+\"|'[^'\n]*+'|[\w-]++)"
LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?>[ \t]*+\.[ \t]*+{_PART}){{{KEY_PARTS}}}")


def bytes_of(path: Path, where: str = "", most: int = LARGEST) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file; a link is followed.
        where: what stands before the sentence: the place that names the file.
        most: how many bytes it may have.

    Raises:
        BadInput: there is no such file, it is no regular one, or it is too large.
    """
    try:
        # Never waits for somebody to write into a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            mode = os.fstat(handle).st_mode
            if stat.S_ISDIR(mode):
                raise BadInput(
                    f"{where}{path}: is a folder; name the lock or requirements file in it"
                )
            if not stat.S_ISREG(mode):
                raise BadInput(f"{where}{path}: not a regular file; use - to read from a pipe")
            with os.fdopen(handle, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise BadInput(f"{where}{path}: no such file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a valid file name"
        raise BadInput(f"{where}{str(path)[:200]}: cannot be read ({why})") from None
    return _small(data, f"{where}{path}", most)


def _small(data: bytes, name: str, most: int) -> bytes:
    if len(data) > most:
        size = f"{most // MIB} MiB" if most >= MIB else f"{most // 1024} KiB"
        raise BadInput(f"{name}: larger than the limit of {size}")
    return data


def text_of(path: Path, where: str = "", most: int = LARGEST) -> str:
    """The text of a file; UTF-8, or UTF-16 as PowerShell's ``>`` writes it.

    Raises:
        BadInput: as :func:`bytes_of`, or it is no text.
    """
    return _decoded(bytes_of(path, where, most), f"{where}{path}")


def standard_input() -> str:
    """What is piped into the command, under the same limits."""
    data = sys.stdin.buffer.read(LARGEST + 1)
    return _decoded(_small(data, "standard input", LARGEST), "standard input")


def _decoded(data: bytes, name: str) -> str:
    wide = data.startswith(UTF16)
    if b"\0" in data and not wide:
        raise BadInput(f"{name}: not a text file")
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        place = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{name}:{place}: not UTF-8; save it as UTF-8") from None
    if "\0" in text:
        raise BadInput(f"{name}: not a text file")
    return text


def toml_of(path: Path, where: str = "") -> dict[str, Any]:
    """A TOML file.

    Raises:
        BadInput: as :func:`text_of`, or it is no TOML.
    """
    text = text_of(path, where)
    if text.count("=") > MOST_VALUES or text.count("[") > MOST_TABLES:
        raise BadInput(f"{where}{path}: more values than any lock of a stack contains")
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") >= KEY_PARTS and LONG_KEY.search(line):
            raise BadInput(f"{where}{path}:{number}: a key of more than {KEY_PARTS} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (line \d+, column \d+|end of document)\)$", str(error))
        said = f" ({place[1]})" if place else ""
        raise BadInput(f"{where}{path}: not valid TOML{said}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}{path}: {_too_much(error, 'TOML')}") from None


def json_of(path: Path, where: str = "") -> Any:
    """A JSON file of configuration.

    Raises:
        BadInput: as :func:`text_of`, or it is no JSON.
    """
    text = text_of(path, where, LARGEST_CONFIG)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}{path}: {_too_much(error, 'JSON')}") from None


def yaml_of(path: Path, where: str = "") -> Any:
    """A YAML file of configuration.

    Raises:
        BadInput: as :func:`text_of`, or it is no YAML.
    """
    return yaml_in(text_of(path, where, LARGEST_CONFIG), f"{where}{path}")


def yaml_in(text: str, name: str) -> Any:
    """The data of a YAML text, which is called ``name`` in sentences.

    Events are counted before anything is built: aliases multiply, and building recurses.

    Raises:
        BadInput: no YAML, nested too deep, or too many aliases.
    """
    import yaml

    # libyaml's loader is many times faster, and not everywhere.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = aliases = 0
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > DEEPEST:
                raise BadInput(f"{name}:{_line(event)}: nested more than {DEEPEST} deep")
            if aliases > ALIASES:
                raise BadInput(f"{name}:{_line(event)}: more than {ALIASES} aliases")
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise BadInput(f"{name}{line}: not valid YAML") from None
    except BadInput:
        raise
    except Exception as error:  # PyYAML's constructors raise whatever happens to them
        raise BadInput(f"{name}: {_too_much(error, 'YAML')}") from None


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _too_much(error: Exception, what: str) -> str:
    """What is wrong with a document that its parser did not expect."""
    if isinstance(error, RecursionError):
        return f"unreadable {what}: nested too deep"
    return f"unreadable {what}: it contains an invalid number or date"


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """A value that has to be a table.

    Raises:
        BadInput: it is something else.
    """
    if not isinstance(value, dict):
        raise BadInput(f"{name} is not a table")
    return value
