"""How many stacks a machine takes at a time."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from trl_compat.machine import host

GIB = 2**30


@pytest.mark.parametrize(
    ("cores", "gigabytes", "gpus", "device", "ranks", "expected"),
    [
        (2, 24, 0, "cpu", 2, 2),
        (64, 16, 0, "cpu", 2, 5),
        (2, 1, 0, "cpu", 2, 1),
        (16, 128, 8, "cuda", 2, 4),
        (16, 128, 8, "cuda", 8, 1),
        (16, 16, 8, "cuda", 2, 2),
        (2, 128, 8, "cuda", 2, 2),
    ],
)
def test_cells_fill_the_machine_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    gigabytes: int,
    gpus: int,
    device: str,
    ranks: int,
    expected: int,
) -> None:
    memory = SimpleNamespace(available=gigabytes * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(host, "visible_gpus", lambda: [str(number) for number in range(gpus)])
    assert host.stacks_at_a_time(device, ranks) == expected
