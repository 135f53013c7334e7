"""A machine as reports describe it: without its name."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Host(BaseModel):
    """Operating system, processor, memory, GPUs, and how far the kernel isolates cells.

    Attributes:
        isolation: the active parts of the isolation, see :class:`trl_compat.machine.parts.Part`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    os: str
    cpu: str
    memory: str
    gpus: list[str] = []
    driver: str | None = None
    isolation: list[str] = []
