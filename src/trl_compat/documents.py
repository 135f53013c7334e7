"""YAML files that are validated into pydantic models, with errors that name file, line and key.

Loading is data only: the safe loader, no tags, nothing is run.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from trl_compat.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str | int, ...]


def load(path: Path, model: type[Model]) -> Model:
    """Reads a YAML file as the given model.

    Raises:
        BadInput: unreadable, no YAML, a key twice, an unknown key, or a value of the wrong kind;
            the text names the file, the line and the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadInput(f"{path}{line}: not valid YAML: {problem}") from None
    lines: dict[KeyPath, int] = {}
    if root is not None:
        _note_lines(root, (), lines, path)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(_sentence(path, error, lines, model)) from None


def _note_lines(node: yaml.Node, at: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*at, str(key.value))
            if here in lines:
                raise BadInput(f"{path}:{key.start_mark.line + 1}: key '{key.value}' stands twice")
            lines[here] = key.start_mark.line + 1
            _note_lines(value, here, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _note_lines(value, (*at, number), lines, path)


def _sentence(
    path: Path, error: ValidationError, lines: dict[KeyPath, int], model: type[BaseModel]
) -> str:
    # An unknown key often makes another one missing; the unknown one is the mistake.
    errors = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    first = errors[0]
    location: KeyPath = tuple(first["loc"])
    known = location
    while known and known not in lines:
        known = known[:-1]
    line = lines.get(known, 1)
    key = ".".join(str(part) for part in location) or "the document"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(location[-1]), _all_fields(model), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        message = f"unknown key '{key}'{hint}"
    else:
        message = f"{key}: {first['msg'].removeprefix('Value error, ')}"
    more = len(errors) - 1
    return f"{path}:{line}: {message}" + (f" (and {more} more)" if more else "")


def _all_fields(model: type[BaseModel]) -> list[str]:
    """Names of the fields of a model and of the models inside it, for suggestions."""
    schema = model.model_json_schema()
    names = list(schema.get("properties", {}))
    for inner in schema.get("$defs", {}).values():
        names.extend(inner.get("properties", {}))
    return names
