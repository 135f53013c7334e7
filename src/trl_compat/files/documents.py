"""YAML files that are validated into pydantic models, with errors that name file, line and key.

Loading is data only: the safe loader, no tags, no code.  Documents are untrusted, so their length,
depth and size (with aliases expanded) are limited before they are parsed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from trl_compat.errors import BadInput
from trl_compat.files.reading import text_of
from trl_compat.text.nearest import nearest

if TYPE_CHECKING:  # doctor reads YAML, and has no use for pydantic
    from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound="BaseModel")
KeyPath = tuple[str | int, ...]

# libyaml's loader is many times faster, and not everywhere.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LONGEST, DEEPEST, MOST_NODES = 2_000_000, 30, 200_000
# Numbers of hundreds of digits, and of parts in base 60, take their time.
LONGEST_NUMBER = 60


def load(path: Path, model: type[Model]) -> Model:
    """Reads a YAML file as the given model.

    Raises:
        BadInput: unreadable, no YAML, a key twice, an unknown key, or a value of the wrong kind;
            the text names the file, the line and the key.
    """
    from pydantic import ValidationError

    root, data = _composed(text_of(path), path)
    lines: dict[KeyPath, int] = {}
    if root is not None:
        _note_lines(root, (), lines, path)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(_sentence(path, error, lines, model)) from None


def line_of(path: Path, keys: KeyPath) -> int:
    """The line of a YAML file in which a key stands, for messages; 1 if there is no such key."""
    root, _ = _composed(text_of(path), path)
    lines: dict[KeyPath, int] = {}
    if root is not None:
        _note_lines(root, (), lines, path)
    return lines.get(keys, 1)


def yaml_of(text: str, path: Path) -> Any:
    """What a YAML text says.

    Args:
        path: where it comes from, for messages.

    Raises:
        BadInput: no YAML, or more than anybody writes by hand; the text names file and line.
    """
    return _composed(text, path)[1]


def _composed(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """The nodes of a document, and what they say."""
    try:
        _refuse_excess(text, path)
        loader = LOADER(text)
        try:
            root = loader.get_single_node()
            return root, None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadInput(f"{path}{line}: not valid YAML: {problem}") from None
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        # A day that no calendar has, a number that is none.
        raise BadInput(f"{path}: not valid YAML: {error}") from None


def _refuse_excess(text: str, path: Path) -> None:
    """Reads the document piece by piece, which takes no more than its length.

    Raises:
        BadInput: it is too long, too deep or too large.
        yaml.YAMLError: it is no YAML.
    """

    def refuse(what: str) -> BadInput:
        mark = event.start_mark if event is not None else None
        where = f":{mark.line + 1}" if mark is not None else ""
        return BadInput(f"{path}{where}: {what}")

    event = None
    if len(text) > LONGEST:
        raise refuse(f"{len(text)} characters; the limit is {LONGEST}")
    total = 0
    # How many nodes had begun where an open node began, with its anchor; and the size of the others
    # that have an anchor, with all that their aliases stand for.
    begun: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _ in begun}:
                raise refuse(f"'*{event.anchor}' refers to itself")
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
            plain = event.implicit[0] and len(event.value) > LONGEST_NUMBER
            if plain and not event.value.strip("+-.:_0123456789"):
                raise refuse(f"a number of {len(event.value)} characters")
        elif isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, total))
            total += 1
            if len(begun) > DEEPEST:
                raise refuse(f"more than {DEEPEST} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > MOST_NODES:
            raise refuse(f"more than {MOST_NODES} values after expanding aliases")


def _note_lines(node: yaml.Node, at: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*at, str(key.value))
            if here in lines:
                raise BadInput(f"{path}:{key.start_mark.line + 1}: key '{key.value}' occurs twice")
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
        near = nearest(str(location[-1]), _all_fields(model))
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
