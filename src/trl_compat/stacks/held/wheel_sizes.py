"""What wheels take that are not in uv's cache yet: to download, and unpacked.

A wheel is a zip file: its table of contents, read by range requests, tells both exactly, in
kilobytes even for torch.  Of a server that gives no ranges only the length is known; of one that
does not tell that either, nothing.
"""

from __future__ import annotations

import io
import os
import tomllib
import zipfile
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from trl_compat.stacks.environments import EnvironmentFailed
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.environments.lock_text import Entry
from trl_compat.stacks.environments.settings import index_urls
from trl_compat.stacks.environments.uv import uv

if TYPE_CHECKING:
    from unearth.fetchers import PyPIClient

BLOCK = 64 * 1024
AT_A_TIME = 16
HALF_A_BLOCK = 2048  # what a file takes beyond its length, on average


@dataclass(frozen=True)
class WheelSize:
    """Bytes of a wheel; None where nobody tells."""

    download: int | None = None
    unpacked: int | None = None


def measure(wanted: Collection[Entry], interpreter: Interpreter) -> dict[str, WheelSize]:
    """The sizes of releases, by ``name==version``; a release that no index tells of is left out."""
    places = _places(wanted, interpreter)
    if not places:
        return {}
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    auth = MultiDomainBasicAuth(prompting=False, index_urls=index_urls(os.environ))
    with (
        PyPIClient(auth=auth, timeout=30, follow_redirects=True) as client,
        ThreadPoolExecutor(AT_A_TIME) as threads,
    ):
        found = threads.map(lambda place: _size(place[0], place[1], client), places.values())
        return dict(zip(places, found, strict=True))


def _places(wanted: Iterable[Entry], interpreter: Interpreter) -> dict[str, tuple[str, int | None]]:
    """Address and, where the index tells it, length of the wheel of each release."""
    pins = {f"{entry.name}=={entry.version}": entry for entry in wanted}
    command = ["pip", "compile", "-", "--no-deps", "--quiet", "--format", "pylock.toml"]
    command += ["--python", interpreter.path]
    try:
        said = uv(command, text="".join(f"{pin}\n" for pin in pins))
    except EnvironmentFailed:
        return {}
    found = {}
    for package in tomllib.loads(said).get("packages", []):
        pin = f"{canonicalize_name(package['name'])}=={package.get('version', '')}"
        if pin in pins and (wheel := _wheel(package.get("wheels", []), pins[pin].hashes)):
            found[pin] = (wheel.get("url") or wheel.get("path", ""), wheel.get("size"))
    return found


def _wheel(wheels: Iterable[Mapping[str, Any]], hashes: Collection[str]) -> Mapping[str, Any]:
    """The wheel that is taken: one that the lock names, its newest build."""
    named = [w for w in wheels if f"sha256:{w.get('hashes', {}).get('sha256')}" in hashes]
    return max(named or list(wheels), key=_build, default={})


def _build(wheel: Mapping[str, Any]) -> tuple[int | str, ...]:
    address = str(wheel.get("url") or wheel.get("path") or "")
    try:
        name = url2pathname(urlsplit(address).path.rpartition("/")[2])
        return parse_wheel_filename(name)[2] or (0, "")
    except InvalidWheelFilename:
        return (0, "")


def _size(address: str, length: int | None, client: PyPIClient) -> WheelSize:
    from httpx2 import HTTPError

    try:
        if urlsplit(address).scheme in ("", "file"):
            path = url2pathname(urlsplit(address).path) if "://" in address else address
            return WheelSize(os.stat(path).st_size, _unpacked(open(path, "rb")))
        if length is None:
            length = _length(address, client)
        if length is None:
            return WheelSize()
    except (OSError, HTTPError):
        return WheelSize(length)
    except zipfile.BadZipFile:
        return WheelSize()
    try:
        return WheelSize(
            length, _unpacked(io.BufferedReader(_Remote(address, length, client), BLOCK))
        )
    except (OSError, HTTPError, zipfile.BadZipFile):
        return WheelSize(length)


def _unpacked(file: Any) -> int:
    with file, zipfile.ZipFile(file) as wheel:
        return sum(member.file_size + HALF_A_BLOCK for member in wheel.infolist())


def _length(address: str, client: PyPIClient) -> int | None:
    answer = client.head(address)
    answer.raise_for_status()
    length = answer.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


class _Remote(io.RawIOBase):
    """A file on a web server, read in pieces."""

    def __init__(self, address: str, length: int, client: PyPIClient) -> None:
        super().__init__()
        self._address, self._length, self._client, self._at = address, length, client, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._length)
        if end <= self._at:
            return 0
        headers = {"Range": f"bytes={self._at}-{end - 1}", "Accept-Encoding": "identity"}
        with self._client.stream("GET", self._address, headers=headers) as answer:
            if answer.status_code != 206:
                raise OSError(f"{self._address}: the server does not support range requests")
            content = answer.read()
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
