"""A package that is missing is an error: it is no release before all others, nor after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trl_compat.runtime import stand_ins, trainers
from trl_compat.runtime.context import NotApplicable, NotInstalled, at_least, installed

# The harness's own environment has nothing of the stack.


@pytest.mark.parametrize("name", sorted(trainers.HOMES))
def test_no_trainer_is_not_there_yet_where_trl_is_missing(name: str) -> None:
    with pytest.raises(NotInstalled, match="trl is not installed"):
        trainers.find(name)


def test_no_release_is_before_another_where_there_is_none() -> None:
    with pytest.raises(NotInstalled, match="deepspeed is not installed"):
        at_least("deepspeed", "0.1")


@pytest.mark.parametrize("metadata", [None, "", "Name: trl\n"])
def test_a_package_whose_metadata_is_gone_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: str | None
) -> None:
    (tmp_path / "trl-1.12.0.dist-info").mkdir()
    if metadata is not None:
        (tmp_path / "trl-1.12.0.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed("trl") == ""
    with pytest.raises(NotInstalled):
        trainers.find("PPO")


def test_a_release_without_the_trainer_is_still_not_applicable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "trl-0.8.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.8.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotApplicable, match="no PPO trainer yet"):
        trainers.find("PPO")


def test_a_stack_without_deepspeed_needs_no_stand_in_for_it() -> None:
    for stand_in in stand_ins.AUTOMATIC:
        if stand_in.reason.startswith("DeepSpeed"):
            assert not stand_in.needed(), stand_in.name
