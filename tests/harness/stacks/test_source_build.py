"""Builds: what of a source is run, where, with what in reach, and what comes out of it."""

from __future__ import annotations

import datetime
import hashlib
import http.server
import json
import os
import shutil
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import sources
from trl_compat.errors import HarnessError
from trl_compat.machine import isolation
from trl_compat.stacks.environments import (
    BuildRefused,
    Unavailable,
    Unresolvable,
    WrongFile,
    cache,
    git_sources,
    interpreters,
    sdists,
    source_build,
    user_locks,
)
from trl_compat.stacks.environments.lock_text import entries
from trl_compat.stacks.environments.resolving import Resolution
from trl_compat.stacks.environments.source_build import Commit, Target
from trl_compat.stacks.environments.without_wheels import KNOWN, Allowed

DAY = datetime.date(2026, 11, 21)
URL = "https://git.test/owner/sly"
NOBODY, ANYBODY = Allowed(), Allowed(None)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture
def links(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "links"
    folder.mkdir()
    sources.only_from(folder, monkeypatch, tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "build").symlink_to(tools)  # the tools of a build are made once
    return folder


def target() -> Target:
    return Target(interpreters.own(), lambda: "", DAY)


def built(links: Path, **code: str) -> Path:
    sources.sdist(links, "sly", "1.0", sources.files("sly", "1.0", **code))
    return source_build.wheel(sdists.find("sly", "1.0"), target())


def seen_in(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        found: dict[str, Any] = json.loads(archive.read("sly/seen.json"))
    return found


def test_a_build_sees_nothing_of_the_users_environment(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"HF_TOKEN": "hf_secret", "HTTPS_PROXY": "http://user:word@proxy.test", "FOO": "bar"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    seen = seen_in(built(links))
    assert not set(secrets) & set(seen["env"])
    assert not [v for v in seen["env"].values() if "secret" in v or "word@" in v]
    assert str(Path.home()) not in seen["env"]["HOME"]
    assert seen["home"] == []
    assert not seen["cwd"].startswith(os.getcwd())


def test_a_build_reaches_what_is_its_own_and_nothing_else(links: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = sources.reaching_out(tmp_path, server.getsockname())
        tried = seen_in(built(links, before=code))["tried"]
    contained = isolation.available()
    for part, attempt in (("writing", "write"), ("reading", "read"), ("network", "connect")):
        assert tried[attempt] == ("refused" if part in contained else "done")
    assert (tmp_path / "planted").exists() == ("writing" not in contained)


def test_a_wheel_is_built_once_and_kept(links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds, run = [], source_build.run_build

    def counted(command: list[str], **given: Any) -> Any:
        builds.append(command)
        return run(command, **given)

    monkeypatch.setattr(source_build, "run_build", counted)
    wheel = built(links)
    assert source_build.wheel(sdists.find("sly", "1.0"), target()) == wheel
    assert len(builds) == 1
    wheel.write_bytes(b"cut off")
    again = source_build.wheel(sdists.find("sly", "1.0"), target())
    assert zipfile.is_zipfile(again)
    assert len(builds) == 2


def test_a_build_that_comes_to_no_end_is_ended(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_build, "TIME_LIMIT", 1.0)
    with pytest.raises(Unresolvable, match=r"building sly 1\.0 did not finish"):
        built(links, before="__import__('threading').Event().wait()")


def test_a_build_that_fails_is_the_stacks_own_reason(links: Path) -> None:
    with pytest.raises(Unresolvable, match=r"building sly 1.0: .*a compiler of 1987"):
        built(links, before="raise RuntimeError('it needs a compiler of 1987')")


@pytest.mark.parametrize("text", ["error sending request", "No space left on device"])
def test_what_a_build_says_decides_nothing_but_its_reason(links: Path, text: str) -> None:
    with pytest.raises(Unresolvable, match=text):
        built(links, before=f"raise RuntimeError({text!r})")


def test_a_build_that_is_killed_says_nothing_about_the_stack(links: Path) -> None:
    killed = "os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)"
    with pytest.raises(HarnessError, match=r"building sly 1\.0 was killed by SIGKILL"):
        built(links, before=killed)


def test_a_wheel_of_something_else_is_refused(links: Path) -> None:
    parts = sources.files("other", "1.0")
    parts["pyproject.toml"] = sources.PYPROJECT.format(name="sly", version="1.0")
    sources.sdist(links, "sly", "1.0", parts)
    with pytest.raises(Unresolvable, match=r"building sly"):
        source_build.wheel(sdists.find("sly", "1.0"), target())


def test_what_a_build_leaves_is_checked_before_it_is_copied(tmp_path: Path) -> None:
    source = sdists.Sdist("sly", "1.0", "file:///x/sly-1.0.tar.gz", "0")
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "secret").write_text("secret")
    (out / "sly-1.0-py3-none-any.whl").symlink_to(tmp_path / "secret")
    taken = source_build.__dict__["_taken"]
    with pytest.raises(Unresolvable, match="produced 1 wheels instead of one"):
        taken(source, out)
    (out / "sly-1.0-py3-none-any.whl").unlink()
    (out / "sly-2.0-py3-none-any.whl").touch()
    with pytest.raises(Unresolvable, match=r"produced sly 2\.0 instead"):
        taken(source, out)
    (out / "sly-2.0-py3-none-any.whl").rename(out / "sly.whl")
    with pytest.raises(Unresolvable, match="not a wheel"):
        taken(source, out)


@pytest.mark.parametrize(
    "pyproject",
    [
        "[build-system\n",
        "[build-system]\nrequires = ['x @ https://a.test/x.whl']\n",
        "[build-system]\nrequires = ['= 1']\n",
        "[build-system]\nrequires = 1\n",
        "build-system = 1\n",
        "[" * 4000,
    ],
)
def test_what_a_source_is_built_with_is_read_as_data(links: Path, pyproject: str) -> None:
    sources.sdist(links, "sly", "1.0", {**sources.files("sly", "1.0"), "pyproject.toml": pyproject})
    with pytest.raises(Unresolvable, match="sly: its "):
        source_build.wheel(sdists.find("sly", "1.0"), target())


def test_another_file_under_the_same_name_is_refused(links: Path) -> None:
    sources.sdist(links, "sly", "1.0", sources.files("sly", "1.0"))
    found = sdists.find("sly", "1.0")
    with pytest.raises(
        WrongFile, match=r"sly 1\.0: the source package on the index does not match"
    ):
        sdists.check_hash(found, ["sha256:00"])
    sources.sdist(links, "sly", "1.0", sources.files("sly", "1.0", before="print(1)"))
    with pytest.raises(WrongFile, match=r"sly-1\.0\.tar\.gz: the file on the index does not match"):
        source_build.wheel(found, target())
    (links / "sly-1.0.tar.gz").unlink()
    with pytest.raises(Unavailable, match="No such file"):
        source_build.wheel(found, target())


class Index(http.server.BaseHTTPRequestHandler):
    """An index that has one file, behind a redirect."""

    data = b""

    def do_GET(self) -> None:
        here = self.path.endswith("sly-1.0.tar.gz")
        self.send_response(200 if here else 302 if self.path == "/moved" else 404)
        self.send_header("Location", "/there/sly-1.0.tar.gz")
        self.end_headers()
        self.wfile.write(self.data if here else b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_source_package_is_fetched_from_an_index(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index.data = b"x" * 100_000
    right = hashlib.sha256(Index.data).hexdigest()

    def at(path: str, sha256: str = right) -> sdists.Sdist:
        return sdists.Sdist("sly", "1.0", f"{address}{path}", sha256)

    fetched = sdists.fetch(at("/sly-1.0.tar.gz"), tmp_path)
    assert fetched.read_bytes() == Index.data
    assert sdists.fetch(at("/moved"), tmp_path).read_bytes() == Index.data
    with pytest.raises(Unavailable, match="404"):
        sdists.fetch(at("/nothing.tar.gz"), tmp_path)
    with pytest.raises(WrongFile, match=r"sly-1\.0\.tar\.gz"):
        sdists.fetch(at("/sly-1.0.tar.gz", "0" * 64), tmp_path)
    monkeypatch.setattr(sdists, "LIMIT", 1000)
    with pytest.raises(Unresolvable, match="larger than"):
        sdists.fetch(at("/sly-1.0.tar.gz"), tmp_path)


def test_a_server_that_is_not_there_is_out_of_reach(tmp_path: Path) -> None:
    with socket.socket() as bound:  # nobody listens there
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/sly-1.0.tar.gz"
        with pytest.raises(Unavailable, match=r"sly-1\.0\.tar\.gz: "):
            sdists.fetch(sdists.Sdist("sly", "1.0", url, "0" * 64), tmp_path)


def test_resolving_builds_what_has_no_wheel_and_locks_its_source(links: Path) -> None:
    sources.sdist(links, "sly", "1.0", sources.files("sly", "1.0"))
    text = Resolution(["sly==1.0"], DAY, interpreters.own(), ANYBODY, "").text()
    (entry,) = entries(text)
    assert (entry.name, entry.version) == ("sly", "1.0")
    assert entry.hashes == (f"sha256:{sdists.find('sly', '1.0').sha256}",)


@pytest.mark.parametrize("lines", [["sly==1.0"], ["sly>=0.5"]])
def test_nothing_is_built_that_is_not_allowed(
    links: Path, tmp_path: Path, lines: list[str]
) -> None:
    planted = tmp_path / "planted"
    code = f"open({str(planted)!r}, 'w').write(str(os.environ))"
    parts = {**sources.files("sly", "1.0", before=code), "setup.py": f"import os\n{code}\n"}
    parts["backend.py"] = f"import os\n{code}\n{parts['backend.py']}"
    sources.sdist(links, "sly", "1.0", parts)
    with pytest.raises(BuildRefused, match=r"sly.* has no wheel .*runs its code") as error:
        Resolution(lines, DAY, interpreters.own(), NOBODY, "").text()
    assert error.value.package == "sly"
    with pytest.raises(BuildRefused, match=r"sly 1\.0 has no wheel"):
        user_locks.keep(["sly==1.0"], {}, interpreters.own(), NOBODY)
    assert not planted.exists()
    user_locks.keep(["sly==1.0"], {}, interpreters.own(), Allowed(frozenset({"sly"})))
    assert not planted.exists()  # a lock of exact pins needs no build at all


def test_a_dependency_without_a_wheel_is_refused_too(links: Path) -> None:
    sources.sdist(links, "sly", "1.0", sources.files("sly", "1.0"))
    sources.wheel(links, "top", "1.0", "sly")
    with pytest.raises(BuildRefused, match=r"sly.* has no wheel"):
        Resolution(["top==1.0"], DAY, interpreters.own(), NOBODY, "").text()
    text = Resolution(["top==1.0"], DAY, interpreters.own(), Allowed(frozenset({"sly"}))).text()
    assert [entry.name for entry in entries(text)] == ["sly", "top"]


def test_git_is_refused_before_anything_is_fetched(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = sources.repository(tmp_path / "sly", sources.files("sly", "1.0"))
    sources.instead_of(URL, tmp_path / "sly", monkeypatch)
    pin = f"sly @ git+{URL}@{commit}"
    for refused in (
        lambda: user_locks.keep([pin], {}, interpreters.own(), NOBODY),
        lambda: user_locks.keep([pin], {}, interpreters.own(), Allowed(frozenset({"trl"}))),
        lambda: Resolution([pin], DAY, interpreters.own(), NOBODY).text(),
    ):
        with pytest.raises(BuildRefused, match=r"sly comes from git .*runs its code"):
            refused()
    assert not (cache.root() / "git").exists()


def test_what_is_known_to_have_no_wheels_is_not_allowed_from_git() -> None:
    for name in KNOWN:
        NOBODY.check(name, "it")
        with pytest.raises(BuildRefused):
            NOBODY.check(name, "it", known=False)


def test_a_commit_is_built_from_its_tree_and_locked_by_its_whole_name(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = sources.repository(tmp_path / "sly", sources.files("sly", "1.0.dev0"))
    sources.instead_of(URL, tmp_path / "sly", monkeypatch)
    text = Resolution(
        [f"sly @ git+{URL}@{commit[:9]}"], DAY, interpreters.own(), ANYBODY, ""
    ).text()
    assert text == f"sly @ git+{URL}@{commit}\n"
    shutil.rmtree(tmp_path / "sly")  # the wheel and the repository are kept
    wheel = source_build.wheel(Commit("sly", URL, commit), target())
    assert seen_in(wheel)["env"]["LANG"] == "C.UTF-8"
    assert git_sources.full_commit(URL, commit[:7]) == commit


def test_fetching_runs_no_hook_and_no_submodule(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted"
    inner = tmp_path / "inner"
    sources.repository(inner, {"a.txt": "a"})
    outer = tmp_path / "sly"
    sources.repository(outer, sources.files("sly", "1.0"))
    allowed = ("-c", "protocol.file.allow=always")
    sources.git(outer, *allowed, "submodule", "--quiet", "add", str(inner), "inner")
    commit = sources.commit(outer)
    template = tmp_path / "template" / "hooks"
    template.mkdir(parents=True)
    (template / "post-checkout").write_text(f"#!/bin/sh\necho ran > {planted}\n")
    (template / "post-checkout").chmod(0o755)
    sources.instead_of(URL, outer, monkeypatch)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(template.parent))
    git_sources.checkout(URL, commit, tmp_path / "tree")
    assert (tmp_path / "tree" / "backend.py").is_file()
    assert list((tmp_path / "tree" / "inner").iterdir()) == []
    assert not planted.exists()


def test_a_commit_that_is_not_there_is_unresolvable_and_a_server_unavailable(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources.repository(tmp_path / "sly", {"a.txt": "a"})
    sources.instead_of(URL, tmp_path / "sly", monkeypatch)
    for commit in ("0123456", "0123456789" * 4):
        with pytest.raises(Unresolvable, match=f"has no commit {commit}"):
            git_sources.checkout(URL, commit, tmp_path / "tree")
    sources.instead_of(URL, tmp_path / "nothing", monkeypatch)
    with pytest.raises(Unavailable, match="git: "):
        git_sources.full_commit(URL + "2", "0123456")


def test_a_damaged_copy_of_a_repository_is_fetched_again(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sources.repository(tmp_path / "sly", {"a.txt": "a"})
    sources.instead_of(URL, tmp_path / "sly", monkeypatch)
    assert git_sources.full_commit(URL, first[:8]) == first
    (kept,) = cache.folder("git").glob("*.git")
    (kept / "HEAD").unlink()
    assert git_sources.full_commit(URL, first[:8]) == first
