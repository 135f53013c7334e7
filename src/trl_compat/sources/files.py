"""Files as text and as TOML, and what is said when they cannot be read."""

from __future__ import annotations

import codecs
import tomllib
from pathlib import Path
from typing import Any

from trl_compat.errors import BadInput

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def text_of(path: Path, where: str = "") -> str:
    """The text of a file; UTF-8, or UTF-16 as PowerShell's ``>`` writes it.

    Raises:
        BadInput: there is no such file, or it is no text.
    """
    try:
        data = path.read_bytes()
        if b"\0" in data and not data.startswith(UTF16):
            raise BadInput(f"{where}{path}: not a text file")
        return data.decode("utf-16" if data.startswith(UTF16) else "utf-8-sig")
    except FileNotFoundError:
        raise BadInput(f"{where}{path}: no such file") from None
    except IsADirectoryError:
        raise BadInput(
            f"{where}{path}: a folder; name the lock or requirements file in it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}{path}: cannot be read ({error})") from None


def toml_of(path: Path) -> dict[str, Any]:
    """A TOML file.

    Raises:
        BadInput: as :func:`text_of`, or it is no TOML.
    """
    try:
        return tomllib.loads(text_of(path))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not valid TOML: {error}") from None
