"""Base of everything that is read from files of the project or of a user."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Unknown keys are refused, and nothing is mutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
