"""Odd objects become plain records; odd records cost their own cell its run, and no other's."""

from __future__ import annotations

import contextlib
import json
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.observations import SEEN, observed, record
from tests.harness.recorded_runs import as_expected, keep, outcomes, run
from trl_compat.cells.observation import Observation
from trl_compat.cells.outcome import Outcome
from trl_compat.cells.plan import Cell
from trl_compat.cells.rank_records import RaisedError, RankRecord
from trl_compat.cells.verdict import Verdict, decide
from trl_compat.errors import HarnessError
from trl_compat.files import project
from trl_compat.machine.untrusted import Folder
from trl_compat.running import campaign
from trl_compat.running.campaign import RunSpec
from trl_compat.running.execution import rank_files
from trl_compat.runtime import context, plain, signature
from trl_compat.runtime.rank import status_of, write_record

# What a rank may hand over.


class Silent(Exception):
    where = 5
    __notes__ = 7  # type: ignore[assignment]

    def __str__(self) -> str:
        raise KeyError("there is no text")


class NoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Leaves(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)


class Poses(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise LookupError("what would you like it to be?")


class Meta(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise LookupError


class Nameless(Exception, metaclass=Meta):
    pass


class Whimsical(str):
    def __str__(self) -> str:
        raise KeyError

    def encode(self, *_: object) -> bytes:
        raise KeyError


ODD: dict[str, Callable[[], Exception]] = {
    "no text, and a place of its own": Silent,
    "a text that is a number": NoText,
    "a text that leaves": Leaves,
    "a class that cannot be asked": Poses,
    "a type without a name": Nameless,
    "half a pair": lambda: ValueError("\ud800"),
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "a whimsical text": lambda: ValueError(Whimsical("x")),
    "an error number without end": lambda: OSError(10**30, "x"),
    "a name without end": type("A" * 10_000, (Exception,), {}),
}


@pytest.mark.parametrize("odd", ODD)
def test_every_exception_can_be_described(odd: str) -> None:
    error = ODD[odd]()
    with contextlib.suppress(BaseException):
        raise error
    described = signature.describe(error)
    assert status_of(error) == "raised"
    as_read = RaisedError.model_validate_json(json.dumps(described), strict=True)
    assert as_read.where == "running/test_odd_records.py:test_every_exception_can_be_described"
    assert len(as_read.message) <= plain.LONGEST


def test_only_a_post_condition_names_its_place_itself() -> None:
    class Forged(context.PostConditionFailed):
        pass

    assert signature.describe(context.PostConditionFailed("saved", "x"))["where"] == "check:saved"
    assert signature.describe(Forged("saved", "x"))["where"] == "unknown"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Texts are interrupted after a moment; the handler of the alarm is as it was, then."""
    monkeypatch.setattr(signature, "PATIENCE", 0.01)
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_text_without_end_is_interrupted(impatient: None) -> None:
    class Endless(Exception):
        def __str__(self) -> str:
            while True:
                pass

    described = signature.describe(Endless())
    assert described["message"] == "<no text of this Endless can be made: _TooLong>"
    assert "Endless" in described["traceback"]


def test_a_recursion_keeps_its_beginning_and_its_end() -> None:
    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1)
        raise RecursionError

    with pytest.raises(RecursionError) as caught:
        deeper(500)
    frames = signature.describe(caught.value)["frames"]
    assert len(frames) == signature.MOST_FRAMES
    assert frames[0]["function"].startswith("test_")
    assert frames[-1]["function"] == "deeper"


def itself() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def laughs() -> list[Any]:
    made: list[Any] = ["ha"]
    for _ in range(11):
        made = [made] * 10
    return made


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -(10**5000),
        itself(),
        laughs(),
        {1: 2, (3, 4): b"\xff", None: object()},
        {"\ud800": "\udfff"},
        "x" * 10_000_000,
        ["x" * 100_000] * 1000,
        {n: n for n in range(10**6)},
        Silent(),
        Whimsical("x"),
        {1, 2},
        SimpleNamespace(x=1),
        [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]],
        True,
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_becomes_plain_and_small(value: object) -> None:
    kept = plain.plain(value)
    said = json.dumps(kept, allow_nan=False)
    read = RankRecord.model_validate_json(_with(observations=f'{{"x": {said}}}'), strict=True)
    assert read.observations == {"x": kept}
    assert len(said) < 4 * plain.ROOM


def test_what_is_plain_already_stays_as_it_is() -> None:
    value = {"losses": [1.5, 2, -3.25e-9], "devices": ["cpu"], "whole": True, "none": None, "ü": {}}
    assert plain.plain(value) == value


def test_a_record_that_somebody_spoiled_is_written_all_the_same(tmp_path: Path) -> None:
    spoiled: dict[str, Any] = {"status": "finished", "x": {(1, 2): itself()}, "y": math.nan}
    write_record(tmp_path / "rank0.json", spoiled)
    assert json.loads((tmp_path / "rank0.json").read_text())["status"] == "finished"


# What the harness may find.


def _with(**parts: str) -> str:
    whole = {
        "status": '"finished"',
        "ended": "1.0",
        "checks": "[]",
        "stand_ins": "[]",
        "observations": "{}",
        **parts,
    }
    return "{" + ", ".join(f'"{name}": {value}' for name, value in whole.items()) + "}"


SHAPES = {
    "not JSON": "{",
    "a list": "[]",
    "a number": "5",
    "nothing": "",
    "no parts": "{}",
    "no text": "\xff\xfe",
    "a status of its own": _with(status='"great"'),
    "a list as status": _with(status='["finished"]'),
    "raised nothing": _with(status='"raised"'),
    "an error that is a text": _with(status='"raised"', error='"x"'),
    "where is a number": _with(
        status='"raised"', error='{"exception": "E", "message": "m", "where": 5}'
    ),
    "ended never": _with(ended="NaN"),
    "ended at the end of time": _with(ended="Infinity"),
    "ended as a text": _with(ended='"1.0"'),
    "a check that is a number": _with(checks="[5]"),
    "a name that is a list": _with(checks='[{"name": ["a"], "holds": true, "message": ""}]'),
    "holds perhaps": _with(checks='[{"name": "a", "holds": 1, "message": ""}]'),
    "a name without end": _with(checks=f'[{{"name": "{"a" * 5000}", "holds": true}}]'),
    "stand-ins that are numbers": _with(stand_ins="[1]"),
    "observations that are a list": _with(observations="[]"),
    "a lone surrogate": _with(observations='{"a": "\\ud800"}'),
    "5,000 digits": _with(observations=f'{{"a": {"9" * 5000}}}'),
    "no bottom": _with(observations='{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "of another rank": _with(rank="7"),
    "something more": _with(verdict='"pass"'),
    "twice the limit": _with(observations=f'{{"a": "{"x" * 16_000_000}"}}'),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_of_another_shape_is_said_in_one_sentence(tmp_path: Path, shape: str) -> None:
    (tmp_path / "rank0.json").write_text(SHAPES[shape], encoding="latin-1")
    (tmp_path / "rank1.json").write_text(_with())
    found, problems = rank_files.records(tmp_path, 2)
    assert list(found) == [1]
    (said,) = problems
    assert said.startswith(("the record of rank 0 cannot be read (", "rank0.json cannot be read ("))
    assert len(said) < 300
    assert said.isprintable()


@pytest.mark.parametrize(
    "line",
    ["{", "5", '{"kind": "check"}', '{"kind": "joke", "name": "a", "at": 1.0, "error": {}}'],
)
def test_a_register_of_another_shape_is_said(tmp_path: Path, line: str) -> None:
    (tmp_path / "rank0.failed").write_text(f"{line}\n")
    found, problems = rank_files.failed(tmp_path, 1)
    assert found == {}
    assert problems[0].startswith("the failed checks of rank 0 cannot be read (")


def test_an_answer_about_collectives_of_another_shape_is_none(tmp_path: Path) -> None:
    for answer in ("5", "{}", '{"groups": [{"ranks": 1}]}', '{"groups": 5, "last": []}'):
        (tmp_path / "rank0.collectives.json").write_text(answer)
        with Folder(tmp_path) as left:
            assert rank_files.collectives(left, "rank0.collectives.json") is None


# What that costs.


def test_an_odd_record_in_the_state_folder_costs_no_other_cell_its_report(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_is_odd(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        as_expected(order, todo)
        path = next((where.state / "cells").glob("*__ddp__*.json"))
        kept = json.loads(path.read_text())
        for seen in kept["observations"]:
            for rank in seen["ranks"].values():
                rank["checks"] = [{"name": ["a"], "holds": True, "message": ""}]
        path.write_text(json.dumps(kept))
        return False

    with pytest.raises(HarnessError, match="1 of 2 cells have no record"):
        run(where, monkeypatch, one_is_odd)
    assert set(outcomes(where)) == {"zero3"}
    ran: list[str] = []

    def again(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        ran.extend(cell.variant for cell in todo)
        return as_expected(order, todo)

    assert run(where, monkeypatch, again) == 0
    assert "ddp" in ran


def test_what_cannot_be_judged_is_said_for_its_own_cell_only(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumbles(seen: Observation, *more: Any) -> Verdict:
        if seen.ranks[0].failed:
            raise ZeroDivisionError("nobody thought of that")
        return decide(seen, *more)

    monkeypatch.setattr(campaign, "decide", stumbles)
    assert run(where, monkeypatch, as_expected) == 70
    assert outcomes(where) == {"ddp": Outcome.PASS, "zero3": Outcome.HARNESS_ERROR}


def test_odd_ranks_make_a_cell_that_is_not_reused(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = observed(record(), None, problems=("rank1.json cannot be read",), started_at="3000")

    def odd(order: RunSpec, todo: list[Cell], *_: Any) -> bool:
        for cell in todo:
            keep(order, cell, unread)
        return False

    assert run(where, monkeypatch, odd) == 70
    assert set(outcomes(where).values()) == {Outcome.HARNESS_ERROR}
    assert run(where, monkeypatch, as_expected) == 0


def test_a_record_of_an_older_version_is_none(
    where: project.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(where, monkeypatch, as_expected)
    for path in (where.state / "cells").glob("*.json"):
        kept = json.loads(path.read_text())
        for seen in kept["observations"]:
            seen["ranks"] = {"0": {"status": "raised", "error": SEEN}}  # no more than that
        path.write_text(json.dumps(kept))
    assert run(where, monkeypatch, as_expected) == 0
