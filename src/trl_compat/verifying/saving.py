"""Whether what the trainer saves is what it has trained: written, read again, compared."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import tensors
from .recording import replaced
from .verdict import NOT_CHECKED, OK, VIOLATED, Check


def saved(trainer: Any, weights: dict[str, Any]) -> Check:
    """Saves by ``save_model`` into a temporary folder and compares with the live weights."""
    rank, _ = tensors.rank_and_world()
    folder = tempfile.mkdtemp(prefix="trl-compat-verify-") if rank == 0 else None
    folder = tensors.from_all_ranks(folder)[0]
    failed = ""
    try:
        with _nothing_pushed(trainer.args):
            try:
                trainer.save_model(folder)
            except Exception as error:  # the verdict tells it; training would end here
                failed = f"save_model raised {type(error).__name__}: {str(error)[:200]}"
        failures = [one for one in tensors.from_all_ranks(failed) if one]
        if failures:
            return Check("saved", VIOLATED, failures[0])
        check = _compared(trainer, Path(folder), weights) if rank == 0 else None
        found: Check = tensors.from_all_ranks(check)[0]
        return found
    finally:
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _nothing_pushed(args: Any) -> Iterator[None]:
    with replaced(args, "push_to_hub", False):
        yield


def _compared(trainer: Any, folder: Path, weights: dict[str, Any]) -> Check:
    root = tensors.inner(trainer.model_wrapped)
    files = sorted(path.name for path in folder.iterdir())
    adapters = hasattr(root, "peft_config") and (folder / "adapter_config.json").exists()
    try:
        found = _read(folder)
    except Exception as error:
        return Check(
            "saved", VIOLATED, f"the files cannot be read: {type(error).__name__}: {error}"
        )
    if not any(name.endswith((".safetensors", ".bin")) for name in files):
        return Check("saved", NOT_CHECKED, f"save_model wrote no weights, only {files[:4]}")
    expected = _of_adapter(root, weights) if adapters else dict(weights)
    found = {name: found[name] for name in found}
    if not adapters and not set(found) & set(expected):
        return Check("saved", NOT_CHECKED, "the file has other names than the model")
    return _judged(expected, found, _may_lack(root, expected))


def _judged(expected: dict[str, Any], found: dict[str, Any], tied: set[str]) -> Check:
    import torch

    numbers = {"tensors": f"{len(found)} of {len(expected)}"}
    missing = [name for name in expected if name not in found and name not in tied]
    if missing:
        message = f"{len(missing)} of {len(expected)} tensors are not in the file"
        return Check("saved", VIOLATED, message, numbers, missing[0])
    for name in (name for name in expected if name in found):
        live, stored = expected[name], found[name]
        if live.shape != stored.shape:
            message = f"saved with shape {tuple(stored.shape)}, trained {tuple(live.shape)}"
            return Check("saved", VIOLATED, message, numbers, name)
        if not torch.equal(live.double(), stored.double()):
            gap = float((live.double() - stored.double()).abs().max())
            message = f"the saved weights are not the trained ones ({stored.dtype})"
            return Check("saved", VIOLATED, message, {**numbers, "largest": gap}, name)
    return Check("saved", OK, "what is saved and read again is what was trained", numbers)


def _read(folder: Path) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        from safetensors.torch import load_file

        found.update(load_file(str(path)))
    if not found:
        for pattern in ("pytorch_model*.bin", "adapter_model.bin"):
            for path in sorted(folder.glob(pattern)):
                found.update(torch.load(str(path), map_location="cpu", weights_only=True))
    return found


def _of_adapter(root: Any, weights: dict[str, Any]) -> dict[str, Any]:
    """The tensors that an adapter's file should have, by their names in it."""
    active = getattr(root, "active_adapters", None) or ["default"]
    name = (active if isinstance(active, (list, tuple)) else [active])[0]
    trained = tensors.trainable(root)
    expected = {}
    for tensor, weight in weights.items():
        if f".{name}" in tensor and trained[tensor]:
            stored = tensor.replace(f".modules_to_save.{name}", "").replace(f".{name}", "")
            expected[stored] = weight
    return expected


def _may_lack(root: Any, expected: dict[str, Any]) -> set[str]:
    """Names that a file may leave out: tied to another tensor that is in it."""
    keys = getattr(root, "_tied_weights_keys", None) or ()
    ends = tuple(keys)
    config = getattr(root, "config", None)
    if not getattr(config, "tie_word_embeddings", False):
        return set()
    return {name for name in expected if ends and name.endswith(ends)}
