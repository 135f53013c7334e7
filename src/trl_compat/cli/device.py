"""``--device`` and ``--share-gpu``: which device cells run on, and which GPUs a command takes."""

from __future__ import annotations

from trl_compat.errors import BadInput


def choose_device(
    wanted: str, ranks: int, *, share: bool = False, of_a_node: int | None = None
) -> str:
    """``cuda`` if it is requested, or if the device is free and the GPUs suffice, else ``cpu``.

    The GPUs that are taken are all that this process and its workers see from then on.

    Args:
        wanted: ``cpu``, ``cuda`` or ``auto``.
        ranks: of the largest cell.
        share: whether several ranks have one GPU.
        of_a_node: the GPUs of the cluster's largest node; None where cells run on this machine.

    Raises:
        BadInput: too few GPUs for what is wanted, or something else fills them.
    """
    from trl_compat.machine import gpus

    if of_a_node is not None:
        if wanted == "cuda" and of_a_node < ranks:
            raise BadInput(
                f"--device cuda: {ranks} ranks need {ranks} GPUs, the largest node has {of_a_node}"
            )
        return "cuda" if wanted != "cpu" and of_a_node >= ranks else "cpu"
    device, names = gpus.choose(wanted, ranks, gpus.visible(), share=share, has="this machine has")
    if names:
        gpus.take(names)
    return device
