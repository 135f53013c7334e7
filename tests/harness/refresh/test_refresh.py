"""The command from end to end, on an index in a folder and on cells that are made by hand."""

from __future__ import annotations

import datetime
import http.server
import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.harness.conftest import ROOT
from tests.harness.fake_project import CLI
from tests.harness.observations import RAISED, observed, record
from tests.harness.recorded_runs import keep
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cli import cli
from trl_compat.errors import BadInput
from trl_compat.files import project
from trl_compat.packages import PACKAGES
from trl_compat.refresh import run
from trl_compat.refresh.run import Request
from trl_compat.running import matrix_run
from trl_compat.running.campaign import RunSpec
from trl_compat.shipped import releases

LISTS = Path("src", "trl_compat", "shipped")
TODAY = datetime.date(2026, 12, 1)
PASSES = observed(record(), record())
FAILS = observed(RAISED, RAISED)
IMPOSSIBLE = observed(
    not_started=(Outcome.UNRESOLVABLE, "peft 0.22.0 needs torch 9"),
    started_at="2999-01-01T00:00:00+00:00",  # in this very run: it is tried again in the next
)


def sdist(folder: Path, name: str) -> dict[str, Any]:
    content = b"Metadata-Version: 2.2\nName: x\nVersion: 1\nRequires-Dist: accelerate>=1.4\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("x-1/PKG-INFO")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    (folder / name).write_bytes(packed.getvalue())
    return {"url": name, "size": len(packed.getvalue()), "packagetype": "sdist"}


def make_index(folder: Path, **new: str) -> str:
    """The shipped releases as an index has them, and new ones; its address."""
    folder.mkdir(exist_ok=True)
    known = releases.known()
    for package in PACKAGES:
        listed = {}
        for version, day in known.dates[package].items():
            reason = known.yanked.get(package, {}).get(version)
            file = {"upload_time": f"{day}T00:00:00", "yanked": reason is not None}
            listed[version] = [{**file, "yanked_reason": reason, "requires_python": ""}]
        for version in new.get(package, "").split():
            of_new = {"upload_time": "2026-11-30T00:00:00", "requires_python": ">=3.11"}
            made = sdist(folder, f"{package}-{version}.tar.gz")
            listed[version] = [{**made, **of_new, "yanked": False}]
        (folder / f"{package}.json").write_text(json.dumps({"releases": listed}))
    return f"{folder.as_uri()}/{{package}}.json"


@pytest.fixture
def checkout(project_folder: Path) -> Path:
    (project_folder / LISTS).mkdir(parents=True)
    for name in ("releases.json", "requires.json"):
        shutil.copy(ROOT / LISTS / name, project_folder / LISTS)
    return project_folder


def state(root: Path) -> dict[str, bytes]:
    """What a refusal may not touch."""
    files = [root / "matrix.yaml", *(root / LISTS).iterdir()]
    return {path.name: path.read_bytes() for path in files}


Engine = Callable[[Cell], Observation]


@pytest.fixture
def cells(where: project.Project, monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], None]:
    """Sets what each cell is observed to do."""
    del where  # which makes locks and models unneeded

    def setting(seen: Engine) -> None:
        def engine(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
            for cell in todo:
                keep(order, cell, seen(cell))
            return False

        monkeypatch.setattr(matrix_run, "execute", engine)

    return setting


def request(folder: Path, *, write: bool = False, **new: str) -> Request:
    return Request(
        holds=("torch==2.13.0",),
        today=TODAY,
        index=make_index(folder / "index", **new),
        write=write,
    )


OPTIONS = matrix_run.Options(jobs=1)


def test_new_releases_are_proposed_and_nothing_is_run(checkout: Path) -> None:
    before = state(checkout)
    told = run.refresh(
        project.at(checkout), request(checkout, trl="1.17.0", peft="0.22.0"), options=None
    )
    assert told.exit_code == 0
    assert "## 3 stacks proposed, none run" in told.text
    assert "+  2026-12-01-trl-1.17.0: {as_of: 2026-12-01, torch: 2.13.0, trl: 1.17.0" in told.text
    after = state(checkout)
    assert after["matrix.yaml"] == before["matrix.yaml"]
    assert json.loads(after["releases.json"])["dates"]["trl"]["1.17.0"] == "2026-11-30"
    required = json.loads(after["requires.json"])["trl"]["1.17.0"]
    assert required == {"accelerate": ">=1.4", "python": ">=3.11"}


def test_they_are_written_when_asked(checkout: Path) -> None:
    before = (checkout / "matrix.yaml").read_text()
    told = run.refresh(
        project.at(checkout), request(checkout, trl="1.17.0", write=True), options=None
    )
    after = (checkout / "matrix.yaml").read_text()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert len(added) == 1
    assert added[0].startswith("  2026-12-01-trl-1.17.0: {")
    assert "Added to `matrix.yaml`" in told.text
    again = run.refresh(project.at(checkout), request(checkout, trl="1.17.0"), options=None)
    assert "## No new releases" in again.text


def test_they_are_run_and_compared_with_the_newest_stack(
    checkout: Path, cells: Callable[[Engine], None]
) -> None:
    def seen(cell: Cell) -> Observation:
        if "peft" in cell.stack:
            return IMPOSSIBLE
        return PASSES if cell.stack == "new" or cell.is_control else FAILS

    cells(seen)
    told = run.refresh(
        project.at(checkout), request(checkout, trl="1.17.0", peft="0.22.0"), OPTIONS
    )
    assert told.exit_code == 1
    assert "## New releases: 1 new failure; 1 stack cannot be installed" in told.text
    assert "`2026-12-01-trl-1.17.0`, `2026-12-01-newest`" in told.text
    assert "trl 1.16.0 → 1.17.0 (moved alone, it does the same)" in told.text
    assert "peft 0.22.0 needs torch 9" in told.text
    assert "--matrix" in told.text  # its cells can be run again
    assert not (checkout / "reports").exists()


def test_nothing_that_newly_fails_ends_with_0(
    checkout: Path, cells: Callable[[Engine], None]
) -> None:
    cells(lambda cell: PASSES)
    told = run.refresh(project.at(checkout), request(checkout, trl="1.17.0"), OPTIONS)
    assert (told.exit_code, "nothing newly fails" in told.text) == (0, True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda index: (index / "peft.json").unlink(), "peft.json: cannot be read"),
        (lambda index: (index / "peft.json").write_text('{"releases": {"1.0"'), "peft.json"),
        (lambda index: (index / "peft.json").write_text("{}"), "peft.json: cannot be read"),
        (lambda index: (index / "peft.json").write_text('{"releases": []}'), "peft.json"),
        (lambda index: (index / "trl-1.17.0.tar.gz").write_bytes(b"x"), "trl.json"),
        (lambda index: (index / "torch.json").write_text('{"releases": {}}'), "lists no release"),
    ],
)
def test_an_index_that_stops_answering_costs_nothing(
    checkout: Path, spoil: Callable[[Path], Any], said: str
) -> None:
    before = state(checkout)
    asked = request(checkout, trl="1.17.0", write=True)
    spoil(checkout / "index")
    with pytest.raises(BadInput) as error:
        run.refresh(project.at(checkout), asked, options=None)
    assert said in str(error.value)
    assert "nothing was changed" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert state(checkout) == before


class Stops(http.server.BaseHTTPRequestHandler):
    """An index that promises more than it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"releases": {')

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_an_index_that_breaks_off_is_named(checkout: Path) -> None:
    before = state(checkout)
    with http.server.HTTPServer(("127.0.0.1", 0), Stops) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{{package}}.json"
        with pytest.raises(BadInput, match=r"torch.json: cannot be read \(IncompleteRead"):
            run.refresh(project.at(checkout), Request(today=TODAY, index=address), options=None)
    assert state(checkout) == before


def test_a_replay_runs_the_days_and_goes_on_where_it_stopped(
    checkout: Path, cells: Callable[[Engine], None]
) -> None:
    ran: list[str] = []

    def seen(cell: Cell) -> Observation:
        ran.append(cell.stack)
        if cell.is_control:
            return PASSES
        return FAILS if cell.stack >= "replay-2024-09-19" else PASSES

    cells(seen)
    day = datetime.date(2024, 9, 15), datetime.date(2024, 9, 24)
    asked = Request(holds=("torch==2.4.1",))
    told = run.replayed(project.at(checkout), *day, asked, OPTIONS)
    assert "1 of them brought a failure that the advisories know; 1 of these" in told.text
    assert "brings `saving` (flagged)" in told.text
    assert sorted(set(ran)) == ["replay-2024-09-14", "replay-2024-09-19", "replay-2024-09-24"]
    first = len(ran)
    assert run.replayed(project.at(checkout), *day, asked, OPTIONS).text == told.text
    assert len(ran) == first


def test_an_interrupted_replay_says_what_it_knows_and_goes_on(
    checkout: Path, cells: Callable[[Engine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(cell: Cell) -> Observation:
        fails = cell.stack >= "replay-2024-09-19" and not cell.is_control
        return FAILS if fails else PASSES

    def stops(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        for cell in todo[:5]:  # two stacks, and one cell of the third
            keep(order, cell, seen(cell))
        return True

    day = datetime.date(2024, 9, 15), datetime.date(2024, 9, 24)
    asked = Request(holds=("torch==2.4.1",))
    monkeypatch.setattr(matrix_run, "execute", stops)
    with pytest.raises(run.Stopped) as stopped:
        run.replayed(project.at(checkout), *day, asked, OPTIONS)
    assert "Not run yet: 1 days; the same command goes on" in stopped.value.text
    assert "brings `saving` (flagged)" in stopped.value.text
    assert "| 2024-09-24 | **trl 0.11.1** | not run |" in stopped.value.text
    cells(seen)
    assert "not run" not in run.replayed(project.at(checkout), *day, asked, OPTIONS).text


def test_days_taken_together_are_run_one_by_one_where_they_differ(
    checkout: Path, cells: Callable[[Engine], None]
) -> None:
    ran: set[str] = set()

    def seen(cell: Cell) -> Observation:
        ran.add(cell.stack.removeprefix("replay-2024-"))
        fails = cell.stack >= "replay-2024-09-19" and not cell.is_control
        return FAILS if fails else PASSES

    cells(seen)
    day = datetime.date(2024, 9, 15), datetime.date(2024, 11, 30)
    asked = Request(holds=("torch==2.4.1",), step=31)
    told = run.replayed(project.at(checkout), *day, asked, OPTIONS)
    assert {"09-19", "09-24"} <= ran  # of the group in which the failure begins
    assert "10-24" not in ran  # of one in which nothing changes
    assert "| 2024-09-19 | **trl 0.11.0** |" in told.text


def command(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [str(CLI), "--project", str(root), "refresh", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--replay", "2026-06-02", "2026-06-01"), "the first day is after the last"),
        (("--replay", "2026-06-01", "2030-06-01"), "the list of releases has the days after"),
        (("--replay", "1999-01-01", "2026-06-01"), "the list of releases has the days after"),
        (("--replay", "2026-06-20", "2026-06-21"), "nothing was released in these days"),
        (("--replay", "2026-06-31", "2026-07-01"), "2026-06-31"),
        (("--replay", "2026-06-01", "2026-06-05", "--write"), "leave out --run and --write"),
        (("--replay", "2026-06-01", "2026-06-05", "--hold", "torch==9"), "newer than the list"),
        (("--replay", "2026-06-01", "2026-06-05", "--failure", "savin"), "did you mean 'saving'"),
        (("--index", "https://nowhere"), "{package}"),
        (("--index", "file:///nowhere/{package}.json"), "cannot be read"),
        (("--matrix", "/nowhere.yaml"), "/nowhere.yaml"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_written(
    checkout: Path, words: tuple[str, ...], said: str
) -> None:
    before = state(checkout)
    line = ["--project", str(checkout), "refresh", *words]
    refused = CliRunner().invoke(cli, line, standalone_mode=False).exception
    assert isinstance(refused, BadInput | click.UsageError)
    assert said in str(refused)
    assert len(str(refused).splitlines()) == 1
    assert state(checkout) == before


def test_a_broken_matrix_is_refused_before_the_index_is_asked(checkout: Path) -> None:
    (checkout / "matrix.yaml").write_text("stacks: [\n")
    before = state(checkout)
    done = command(checkout, "--index", make_index(checkout / "index", trl="1.17.0"))
    assert (done.returncode, state(checkout)) == (2, before)
    assert "matrix.yaml" in done.stderr


def test_the_text_is_written_to_a_file_as_well(checkout: Path, tmp_path: Path) -> None:
    index = make_index(checkout / "index", trl="1.17.0")
    done = command(checkout, "--index", index, "--report", str(tmp_path / "new.md"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "new.md").read_text() == done.stdout
