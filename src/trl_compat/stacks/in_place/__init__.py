"""An environment that somebody else made, used as it is: nothing is installed, nothing changed."""

from __future__ import annotations
