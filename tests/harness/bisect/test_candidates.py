"""The releases between two ends, and the options of the command."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from trl_compat.bisect import candidates
from trl_compat.cli.bisect import bisect
from trl_compat.errors import BadInput
from trl_compat.shipped import releases


def answers(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(text.encode()))


def test_pre_releases_and_yanked_ones_are_left_out() -> None:
    known = releases.known()
    found = candidates.span("transformers", "4.45.2", "4.46.2", known)
    assert found.versions == ("4.45.2", "4.46.1", "4.46.2")
    assert candidates.span("transformers", "4.46.2", "4.45.2", known).versions == (
        *reversed(found.versions),
    )


def test_the_index_may_know_more_than_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded = [{"upload_time": "2027-01-02T03:04:05", "yanked": False}]
    gone = [{"upload_time": "2027-01-03T03:04:05", "yanked": True, "yanked_reason": "broken"}]
    listed = {"9.0": uploaded, "9.1": uploaded, "9.1.1": gone, "9.2": []}
    answers(monkeypatch, json.dumps({"releases": listed}))
    known = candidates.from_index("trl")
    assert candidates.span("trl", "9.0", "9.1", known).versions == ("9.0", "9.1")
    assert known.dates["trl"]["9.1"] == "2027-01-02"
    with pytest.raises(BadInput, match=r"9.1.1 was yanked from the index: broken"):
        candidates.span("trl", "9.0", "9.1.1", known)
    assert known.dates["peft"] == releases.known().dates["peft"]


@pytest.mark.parametrize("text", ["", "[]", '{"releases": []}', '{"releases": {"x": [1]}}'])
def test_an_index_that_says_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    answers(monkeypatch, text)
    with pytest.raises(BadInput, match="without --index the shipped list is used"):
        candidates.from_index("trl")


def test_an_index_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", away)
    with pytest.raises(BadInput, match=r"cannot be read .*no route"):
        candidates.from_index("trl")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "bisect requires --package and --good and --bad"),
        (["--package", "trl", "--good", "1"], "bisect requires --bad"),
        (["--minimal", "--good-stack", "a"], "bisect --minimal requires --bad-stack"),
        (
            ["--minimal", "--good-stack", "a", "--bad-stack", "b", "--package", "trl", "--index"],
            "--package and --index: no use with --minimal",
        ),
        (
            ["--package", "trl", "--good", "1", "--bad", "2", "--bad-stack", "b"],
            "--bad-stack: no use without --minimal",
        ),
    ],
)
def test_options_that_do_not_belong_together_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(BadInput) as seen:
        CliRunner().invoke(bisect, ["x", *words], obj=Path(), catch_exceptions=False)
    assert str(seen.value) == said
