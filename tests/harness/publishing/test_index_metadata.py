"""What a release requires is read from the files of an index, and no more than it takes."""

from __future__ import annotations

import io
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from trl_compat.publishing import index_metadata
from trl_compat.shipped import requires

METADATA = b"Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Dist: torch>=2.0\n"
SECTIONS = b"accelerate>=0.21\n\n[deepspeed]\ndeepspeed>=0.14\n\n[:python_version < '3.9']\npeft\n"
Serve = Callable[[dict[str, bytes]], list[int]]


def wheel() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/large.bin", bytes(range(256)) * 40_000)
        archive.writestr("x-1.dist-info/METADATA", METADATA)
    return file.getvalue()


def sdist(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo(f"x-1/{name}")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


class Answer(io.BytesIO):
    status = 206


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Files by address, in place of the index; the list has how many bytes each answer had."""

    def serving(files: dict[str, bytes]) -> list[int]:
        sizes: list[int] = []

        def answer(asked: Any, timeout: float) -> Answer:
            if isinstance(asked, str):
                content = files[asked]
            else:
                first, _, last = asked.headers["Range"].removeprefix("bytes=").partition("-")
                content = files[asked.full_url][int(first) : int(last) + 1]
            sizes.append(len(content))
            return Answer(content)

        monkeypatch.setattr(urllib.request, "urlopen", answer)
        return sizes

    return serving


WHEEL, SOURCE = "https://index/a.whl", "https://index/a.tar.gz"


def entry(url: str, content: bytes, kind: str = "sdist") -> dict[str, Any]:
    return {"url": url, "size": len(content), "packagetype": kind}


def test_of_a_wheel_only_its_metadata_is_fetched(serve: Serve) -> None:
    content = wheel()
    sizes = serve({WHEEL: content})
    files = [entry(SOURCE, b""), entry(WHEEL, content, "bdist_wheel")]
    assert index_metadata.requirements(files) == ["torch>=2.0"]
    assert sum(sizes) < len(content) // 10


def test_a_source_package_says_it_in_sections(serve: Serve) -> None:
    content = sdist("x.egg-info/requires.txt", SECTIONS)
    serve({SOURCE: content})
    found = index_metadata.requirements([entry(SOURCE, content)])
    assert found == [
        "accelerate>=0.21",
        "deepspeed>=0.14; extra == 'deepspeed'",
        "peft; (python_version < '3.9')",
    ]
    assert requires.of_release(found, "") == {"accelerate": ">=0.21", "deepspeed": ">=0.14"}


def test_a_source_package_says_it_in_its_metadata(serve: Serve) -> None:
    content = sdist("PKG-INFO", METADATA)
    serve({SOURCE: content})
    assert index_metadata.requirements([entry(SOURCE, content)]) == ["torch>=2.0"]


def test_a_release_that_says_nothing_is_told_from_one_that_requires_nothing(serve: Serve) -> None:
    content = sdist("setup.py", b"")
    serve({SOURCE: content})
    with pytest.raises(index_metadata.NoMetadata):
        index_metadata.requirements([entry(SOURCE, content)])


def test_only_releases_that_are_not_in_the_list_are_looked_at() -> None:
    listed = {"1.0": ["file"], "1.1": ["file"], "1.2rc1": ["file"], "1.3": []}
    assert requires.missing("trl", listed, {"trl": {"1.0": {}}}) == ["1.1"]


def test_the_list_is_written_a_line_for_each_release() -> None:
    text = requires.written({"trl": {"0.10.1": {}, "0.9.6": {"torch": ">=1.4"}}})
    assert '  "0.9.6": {"torch": ">=1.4"},\n  "0.10.1": {}\n' in text
    assert requires.written(requires.known()) == requires.FILE.read_text(encoding="utf-8")
