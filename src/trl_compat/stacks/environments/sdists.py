"""The source package of a release: its location, its hash and its bytes; none of its code is run.

uv names the location, so that all index settings of uv and pip apply.  The file is downloaded here,
because uv and pip cannot download a source package without running its build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from trl_compat.stacks.environments import Unavailable, Unresolvable, WrongFile
from trl_compat.stacks.environments.settings import index_urls
from trl_compat.stacks.environments.uv import uv

LIMIT = 2 * 1024**3  # bytes; the largest source packages are some hundred megabytes
SUFFIXES = (".tar.gz", ".zip")


@dataclass(frozen=True)
class Sdist:
    """The source package of a release."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The last part of its address."""
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


def find(name: str, version: str) -> Sdist:
    """The source package of a release.

    Raises:
        Unresolvable: there is no such release, or it has no source package.
        Unavailable: the index cannot be reached.
    """
    package = files_of([f"{name}=={version}"]).get(canonicalize_name(name), {})
    sdist = package.get("sdist", {})
    url = sdist.get("url") or _url_of(sdist.get("path", ""))
    sha256 = sdist.get("hashes", {}).get("sha256", "")
    if not url or not sha256:
        raise Unresolvable(f"{name} {version} has no source package")
    found = Sdist(canonicalize_name(name), str(package["version"]), url, sha256)
    if not found.file_name.endswith(SUFFIXES) or "/" in found.file_name:
        raise Unresolvable(f"{name} {version}: '{found.file_name}' is not a source package")
    return found


def entry_of(sdist: Sdist) -> str:
    """The entry of a release in a lock, with the hash of each of its files as uv writes it."""
    command = ["pip", "compile", "-", "--no-deps", "--generate-hashes", "--quiet"]
    pin = f"{sdist.name}=={sdist.version}"
    text = uv([*command, "--no-header", "--no-annotate"], text=f"{pin}\n")
    # Of files in a folder uv names no hash that it has not looked into.
    return text if "--hash=" in text else f"{pin} \\\n    --hash=sha256:{sdist.sha256}\n"


def check_hash(sdist: Sdist, wanted: Iterable[str]) -> None:
    """Refuses a source package that is not among the files that a lock names.

    Raises:
        WrongFile: it is another.
    """
    if f"sha256:{sdist.sha256}" not in wanted:
        raise WrongFile(
            f"{sdist.name} {sdist.version}: the source package on the index does not match the "
            "hash in the lock; do not use it before you know why"
        )


def files_of(pins: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """The files of releases on the indexes, by canonical name, as a pylock.toml has them."""
    command = ["pip", "compile", "-", "--no-deps", "--quiet", "--format", "pylock.toml"]
    document = tomllib.loads(uv(command, text="".join(f"{pin}\n" for pin in pins)))
    return {canonicalize_name(package["name"]): package for package in document["packages"]}


def fetch(sdist: Sdist, folder: Path) -> Path:
    """Brings a source package into a folder.

    Raises:
        Unavailable: it cannot be reached.
        WrongFile: it is another file than the index says.
    """
    path = folder / sdist.file_name
    if urlsplit(sdist.url).scheme == "file":
        try:
            shutil.copyfile(url2pathname(urlsplit(sdist.url).path), path)
        except OSError as error:
            raise Unavailable(f"{sdist.file_name}: {error.strerror}") from None
    else:
        _download(sdist.url, path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sdist.sha256:
        raise WrongFile(
            f"{sdist.file_name}: the file on the index does not match its published hash; "
            "do not use it before you know why"
        )
    return path


def _download(url: str, path: Path) -> None:
    # Credentials are those of the configured indexes, .netrc and keyring, as for pip and uv.
    from httpx2 import HTTPError
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    auth = MultiDomainBasicAuth(prompting=False, index_urls=index_urls(os.environ))
    size = 0
    try:
        with (
            PyPIClient(auth=auth, timeout=60, follow_redirects=True) as client,
            client.get_stream(url) as answer,
            path.open("wb") as file,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                size += len(chunk)
                if size > LIMIT:
                    raise Unresolvable(f"{path.name} is larger than {LIMIT / 1e9:.0f} GB")
                file.write(chunk)
    except HTTPError as error:
        raise Unavailable(f"{path.name}: {str(error).splitlines()[0][:200]}") from None


def _url_of(path: str) -> str:
    return Path(path).absolute().as_uri() if path else ""
