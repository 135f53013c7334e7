"""Which GPUs a command takes and how they are shared out, from what a fake driver says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trl_compat.errors import BadInput
from trl_compat.machine import gpus, host
from trl_compat.machine.gpus import SHARED, Gpu

GIB = 2**30


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, free: list[int]) -> None:
    """Puts a program nvidia-smi on the path that tells of GPUs with so much memory free, in MiB."""
    rows = [
        f"{number}, GPU-{number}aaaa-bbbb, NVIDIA H200, 570.1, 143771, {left}"
        for number, left in enumerate(free)
    ]
    program = folder / "nvidia-smi"
    text = "\n".join(rows)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv(gpus.VISIBLE, raising=False)


def some(*free: int | None) -> list[Gpu]:
    return [
        Gpu(str(n), model="H200", total=140 * GIB, free=None if left is None else left * GIB)
        for n, left in enumerate(free)
    ]


def test_the_driver_is_asked_for_models_and_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, monkeypatch, [143000, 512])
    first, second = gpus.visible()
    assert (first.name, first.model, first.driver) == ("0", "NVIDIA H200", "570.1")
    assert first.has_room(8)
    assert not second.has_room(1)
    described = host.describe()
    assert (described.gpus, described.driver) == (["NVIDIA H200", "NVIDIA H200"], "570.1")


@pytest.mark.parametrize(
    ("chosen", "names", "free"),
    [
        ("1", ["1"], [2]),
        ("1,0", ["1", "0"], [2, 9]),
        ("GPU-1aaaa", ["GPU-1aaaa"], [2]),
        ("MIG-7", ["MIG-7"], [None]),
        ("", [], []),
        ("7", ["7"], [None]),
    ],
)
def test_what_the_user_makes_visible_is_known_by_index_and_uuid(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen: str,
    names: list[str],
    free: list[int | None],
) -> None:
    driver(tmp_path, monkeypatch, [9 * 1024, 2 * 1024])
    monkeypatch.setenv(gpus.VISIBLE, chosen)
    found = gpus.visible()
    assert [gpu.name for gpu in found] == names
    assert [gpu.free and gpu.free // GIB for gpu in found] == free


@pytest.mark.parametrize("said", ["", "exit 9", "echo Failed to initialize NVML", "echo a, b"])
def test_a_driver_that_does_not_answer_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    driver(tmp_path, monkeypatch, [])
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{said}\n")
    assert gpus.visible() == []
    assert host.describe().driver is None


@pytest.mark.parametrize(
    ("wanted", "ranks", "free", "share", "expected"),
    [
        ("auto", 2, [], False, ("cpu", ())),
        ("auto", 2, [9], False, ("cpu", ())),
        ("auto", 2, [9, 9], False, ("cuda", ("0", "1"))),
        ("auto", 2, [9, 1, 9], False, ("cuda", ("0", "2"))),  # somebody fills one of three
        ("cuda", 4, [9, 9, 9, 9, 9], False, ("cuda", ("0", "1", "2", "3", "4"))),
        ("cpu", 2, [9, 9], False, ("cpu", ())),
        ("cuda", 2, [None, None], False, ("cuda", ("0", "1"))),  # nothing tells how full
        ("auto", 2, [9], True, (SHARED, ("0",))),
        ("cuda", 4, [15, 17], True, (SHARED, ("1",))),  # four ranks need more room than one
    ],
)
def test_a_command_takes_gpus_with_room(
    wanted: str,
    ranks: int,
    free: list[int | None],
    share: bool,
    expected: tuple[str, tuple[str, ...]],
) -> None:
    found = gpus.choose(wanted, ranks, some(*free), share=share, has="this machine has")
    assert found == expected


@pytest.mark.parametrize(
    ("wanted", "ranks", "free", "share", "told"),
    [
        ("cuda", 2, [], False, "--device cuda: 2 ranks need 2 GPUs, and this machine has 0"),
        ("cuda", 4, [9], False, "4 GPUs, and this machine has 1; one can be shared: --share-gpu"),
        (
            *("cuda", 2, [9, 1], False),
            "GPU 1 (H200) has 1.0 of 140 GiB free and a rank needs 4: something else uses it; "
            "wait for it, name other GPUs in CUDA_VISIBLE_DEVICES, or use --device cpu",
        ),
        ("auto", 2, [1, 1], False, "GPU 0 (H200) has 1.0 of 140 GiB free"),
        ("auto", 2, [7], True, "GPU 0 (H200) has 7.0 of 140 GiB free and 2 ranks need 8"),
        ("auto", 2, [], True, "--share-gpu: a GPU is needed, and this machine has none"),
        ("cpu", 2, [9], True, "--share-gpu: --device cpu uses no GPU"),
    ],
)
def test_too_few_gpus_or_too_little_room_is_one_sentence(
    wanted: str, ranks: int, free: list[int | None], share: bool, told: str
) -> None:
    with pytest.raises(BadInput) as error:
        gpus.choose(wanted, ranks, some(*free), share=share, has="this machine has")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("count", "device", "ranks", "expected"),
    [
        (8, "cuda", 2, [("0", "1"), ("2", "3"), ("4", "5"), ("6", "7")]),
        (5, "cuda", 2, [("0", "1"), ("2", "3")]),
        (1, "cuda", 2, []),
        (2, SHARED, 8, [("0",), ("1",)]),
        (0, SHARED, 2, []),
    ],
)
def test_no_two_cells_at_a_time_have_the_same_gpu(
    count: int, device: str, ranks: int, expected: list[tuple[str, ...]]
) -> None:
    names = [str(number) for number in range(count)]
    found = gpus.sets(names, device, ranks)
    assert found == expected
    taken = [name for one in found for name in one]
    assert len(taken) == len(set(taken))
