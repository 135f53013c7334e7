"""Renamed options: the old name works for one release and is hidden from help."""

from __future__ import annotations

from typing import Any

import click


class Renamed(click.Option):
    """An option that also accepts its old name."""

    def __init__(self, *args: Any, old: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self._old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Accepts both names; help and messages show the new one."""
        shown = self.opts
        self.opts = [*shown, self._old]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown
