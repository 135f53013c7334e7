"""Values replaced in the text of a record: nothing else changes, so comments and layout stay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trl_compat.errors import BadInput
from trl_compat.publishing.checking.proposals import Edit


@dataclass(frozen=True)
class Replacement:
    """Another text in place of a scalar.

    Attributes:
        keys: where it stands.
        place: the part of the record that it is in, for messages.
    """

    keys: tuple[str | int, ...]
    before: str
    after: str
    place: str


def with_edits(text: str, path: Path, edits: Sequence[Edit]) -> str:
    """The text of a record with other ranges.

    Raises:
        BadInput: a range is not written where it belongs to one scope alone (an alias).
    """
    return with_values(
        text,
        path,
        [
            Replacement(
                ("affected", edit.scope - 1, "versions", edit.package),
                edit.before,
                edit.after,
                f"affected {edit.scope}",
            )
            for edit in edits
        ],
    )


def with_values(text: str, path: Path, replacements: Sequence[Replacement]) -> str:
    """The text of a record with other values.

    Raises:
        BadInput: a value is not there, or not written where it belongs to one place alone (an
            alias).
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    spans = []
    for one in replacements:
        node = root
        for key in one.keys:
            node = _child(node, key)
        if node is None or not isinstance(node, yaml.ScalarNode) or node.value != one.before:
            raise BadInput(
                f"{path}: {one.place}: cannot find {one.keys[-1]} '{one.before}'; change it by hand"
            )
        # A string of JSON is one of YAML as well.
        after = json.dumps(one.after, ensure_ascii=False)
        spans.append((node.start_mark.index, node.end_mark.index, after))
    wanted = _meant(text)
    for one in replacements:
        place = wanted
        for key in one.keys[:-1]:
            place = place[key]
        place[one.keys[-1]] = one.after
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    if _meant(text) != wanted:
        raise BadInput(f"{path}: places share a value by an alias; change it by hand")
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
