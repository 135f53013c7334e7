"""The metadata of a release on the package index, read without large downloads.

A wheel is a zip file: only its table of contents and its METADATA are downloaded, by range
requests, which takes kilobytes even for torch.  A source package is small and is downloaded
completely.  Only ``trl-compat refresh`` calls this.
"""

from __future__ import annotations

import io
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.metadata import parse_email

BLOCK = 64 * 1024
TIMEOUT = 60


class NoMetadata(Exception):
    """The files of a release say nothing about what it requires."""


def requirements(files: Iterable[Mapping[str, Any]]) -> list[str]:
    """The requirements of a release, from the first of its files that has metadata.

    Args:
        files: the entries of the index's JSON document; ``url`` must be absolute.

    Raises:
        NoMetadata: there is neither a wheel nor a source package that says so.
        OSError: the index is out of reach.
    """
    kinds = {"bdist_wheel": _of_wheel, "sdist": _of_source}
    # Wheels first: what a source package says may be made only when it is built.
    for file in sorted(files, key=lambda f: (f["packagetype"] != "bdist_wheel", f["size"])):
        read = kinds.get(file["packagetype"])
        found = read(file["url"], file["size"]) if read else None
        if found is not None:
            return found
    raise NoMetadata


def _of_wheel(url: str, size: int) -> list[str]:
    with zipfile.ZipFile(io.BufferedReader(_Remote(url, size), BLOCK)) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        return list(parse_email(wheel.read(name))[0].get("requires_dist", []))


def _of_source(url: str, size: int) -> list[str] | None:
    del size
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        content = answer.read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {member.name: member for member in archive.getmembers() if member.isfile()}
        # What setuptools keeps beside the code; PKG-INFO has it only from metadata 2.2 on.
        for name in (n for n in files if n.endswith(".egg-info/requires.txt")):
            lines = archive.extractfile(files[name])
            return list(_from_sections(lines.read().decode() if lines else ""))
        for name in (n for n in files if n.count("/") == 1 and n.endswith("/PKG-INFO")):
            text = archive.extractfile(files[name])
            metadata = parse_email(text.read() if text else b"")[0]
            if "requires_dist" in metadata:
                return list(metadata["requires_dist"])
    return None


def _from_sections(text: str) -> Iterable[str]:
    """``requires.txt`` as requirements: a section is an extra, a marker, or both."""
    marker = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("["):
            extra, _, condition = line.strip("[]").partition(":")
            parts = [f"({condition})"] * bool(condition) + [f"extra == '{extra}'"] * bool(extra)
            marker = " and ".join(parts)
        else:
            yield f"{line}; {marker}" if marker else line


class _Remote(io.RawIOBase):
    """A file on a web server, read in pieces."""

    def __init__(self, url: str, size: int) -> None:
        super().__init__()
        self._url, self._size, self._at = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        request = urllib.request.Request(self._url)
        request.add_header("Range", f"bytes={self._at}-{end - 1}")
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if answer.status != 206:
                raise OSError(f"{self._url}: the server does not support range requests")
            content = answer.read()
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
