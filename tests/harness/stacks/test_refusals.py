"""That there is no such stack is asked for once, and kept for as long as the answer counts."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from trl_compat.stacks.environments import (
    BuildRefused,
    NoSolution,
    Unavailable,
    Unresolvable,
    cache,
    locks,
    refusals,
    resolving,
)
from trl_compat.stacks.environments.interpreters import Interpreter
from trl_compat.stacks.matrix import Stack

SIX = ("torch", "transformers", "accelerate", "deepspeed", "peft", "trl")
OLD = Stack.model_validate({"as_of": "2024-11-21", **dict.fromkeys(SIX, "1.0")})
PYTHON = Interpreter("python", "3.11.1")
DAY = datetime.timedelta(days=1)


class Resolver:
    """Refuses with an error, and counts how often it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def __call__(self, *_: object) -> str:
        self.asked += 1
        raise self.error


def refusing(monkeypatch: pytest.MonkeyPatch, folder: Path, error: Exception) -> Resolver:
    resolver = Resolver(error)
    monkeypatch.setenv("TRL_COMPAT_CACHE", str(folder))
    monkeypatch.setattr(locks, "_resolve", resolver)
    monkeypatch.setattr(resolving, "check", resolver)
    return resolver


@pytest.mark.parametrize("way", [locks.resolve, locks.ask])
def test_a_refusal_is_asked_for_once(
    way: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = refusing(monkeypatch, tmp_path, NoSolution("these contradict"))
    for again in (way, locks.resolve, locks.ask):
        with pytest.raises(Unresolvable, match=r"^these contradict$"):
            again(OLD, PYTHON)  # type: ignore[operator]
    assert resolver.asked == 1
    refusal = locks.refused(OLD, PYTHON)
    assert refusal is not None
    assert refusal.until is None  # its day is past
    assert locks.answered(OLD, PYTHON) == refusal.sha256


@pytest.mark.parametrize(
    ("error", "days_ago"), [(NoSolution("no"), 7), (Unresolvable("it will not build"), 700)]
)
def test_an_answer_that_may_change_holds_for_a_day(
    error: Exception, days_ago: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = refusing(monkeypatch, tmp_path, error)
    now = datetime.datetime.now(datetime.UTC)
    stack = OLD.model_copy(update={"as_of": now.date() - days_ago * DAY})
    with pytest.raises(Unresolvable):
        locks.resolve(stack, PYTHON)
    refusal = locks.refused(stack, PYTHON)
    assert refusal is not None
    assert refusal.until is not None
    assert now + DAY <= refusal.until < now + 2 * DAY
    monkeypatch.setattr(refusals, "SHORT_LIFE", -DAY)
    (path,) = cache.folder("locks").glob("*.refused.json")
    path.unlink()
    for _ in range(2):
        with pytest.raises(Unresolvable):
            locks.resolve(stack, PYTHON)
    assert resolver.asked == 3


@pytest.mark.parametrize(
    "error", [Unavailable("no network"), BuildRefused("trl", "nobody has allowed it")]
)
def test_what_is_no_answer_about_the_stack_is_not_kept(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = refusing(monkeypatch, tmp_path, error)
    for _ in range(2):
        with pytest.raises(type(error)):
            locks.resolve(OLD, PYTHON)
    assert resolver.asked == 2
    assert locks.answered(OLD, PYTHON) is None


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\xff", b"edited"])
def test_a_damaged_refusal_is_asked_for_again(
    damaged: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = refusing(monkeypatch, tmp_path, NoSolution("these contradict"))
    with pytest.raises(Unresolvable):
        locks.resolve(OLD, PYTHON)
    (path,) = cache.folder("locks").glob("*.refused.json")
    text = path.read_bytes().replace(b"contradict", b"do agree")
    path.write_bytes(text if damaged == b"edited" else damaged)
    assert locks.refused(OLD, PYTHON) is None
    with pytest.raises(Unresolvable, match="these contradict"):
        locks.resolve(OLD, PYTHON)
    assert resolver.asked == 2


def test_other_index_settings_ask_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, tmp_path, NoSolution("these contradict"))
    with pytest.raises(Unresolvable):
        locks.resolve(OLD, PYTHON)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://another.test/simple")
    assert locks.refused(OLD, PYTHON) is None


def test_the_grid_that_made_a_stack_does_not_change_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, tmp_path, NoSolution("these contradict"))
    with pytest.raises(Unresolvable):
        locks.resolve(OLD, PYTHON)
    assert locks.refused(OLD.model_copy(update={"grid": "g", "also_in": ("h",)}), PYTHON)
