"""Ranges replaced in the text of a record: nothing else changes, so comments and layout stay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from trl_compat.errors import BadInput
from trl_compat.publishing.checking.proposals import Edit


def with_edits(text: str, path: Path, edits: Sequence[Edit]) -> str:
    """The text of a record with other ranges.

    Raises:
        BadInput: a range is not written where it belongs to one scope alone (an alias).
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    spans = []
    for edit in edits:
        node = root
        for key in ("affected", edit.scope - 1, "versions", edit.package):
            node = _child(node, key)
        if node is None or not isinstance(node, yaml.ScalarNode) or node.value != edit.before:
            raise BadInput(
                f"{path}: affected {edit.scope}: cannot find {edit.package} '{edit.before}'; "
                "change it by hand"
            )
        spans.append((node.start_mark.index, node.end_mark.index, f'"{edit.after}"'))
    wanted = _meant(text)
    for edit in edits:
        wanted["affected"][edit.scope - 1]["versions"][edit.package] = edit.after
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    if _meant(text) != wanted:
        raise BadInput(f"{path}: scopes share a range by an alias; change it by hand")
    return text


def _meant(text: str) -> Any:
    """What a text says, with nothing in it shared."""
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


def _child(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        return node.value[key] if key < len(node.value) else None
    return None
