"""Conditions out of a training script, read without running it.

Only what stands there literally counts: which trainers are made, options given as constants, an
adapter that is certainly there.  What comes from the command line or is computed stays open.
"""

from __future__ import annotations

import ast
from pathlib import Path

from trl_compat.doctor.conditions import TRAINERS, Conditions, canonical
from trl_compat.doctor.configs import read_deepspeed
from trl_compat.errors import BadInput
from trl_compat.sources.files import text_of

RESERVED = ("trainer", "strategy", "zero_stage", "fsdp_version", "peft", "device", "world_size")


def read(path: Path, conditions: Conditions) -> None:
    """The conditions that a script states.

    Raises:
        BadInput: no Python, or a contradiction to what was named elsewhere.
    """
    try:
        tree = ast.parse(text_of(path))
    except SyntaxError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None
    bases = {
        node.name: base
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in map(_simple, node.bases)
        if base.endswith("Trainer")
    }
    # What is called, a class of the script under the name of the trainer that it extends.
    called = [(_simple(n.func), n) for n in ast.walk(tree) if isinstance(n, ast.Call)]
    calls = [(bases.get(name, name), call) for name, call in called]
    _trainers({name for name, _ in calls if name.endswith("Trainer")}, path, conditions)
    if any(_is_adapted(name, call, tree) for name, call in calls):
        conditions.say("peft", (True,), str(path))
    for name, call in calls:
        mine = canonical("trainer", name.removesuffix("Config")) in TRAINERS
        if name.endswith("TrainingArguments") or (name.endswith("Config") and mine):
            _options(call, path, conditions)


def _trainers(made: set[str], path: Path, conditions: Conditions) -> None:
    """The trainers that are made; one that is nobody's we know leaves the condition open."""
    made -= {"Trainer", "Seq2SeqTrainer"}
    strangers = {name for name in made if canonical("trainer", name) not in TRAINERS}
    if strangers:
        conditions.notes.append(f"{path}: {', '.join(sorted(strangers))} is no trainer of TRL's")
    elif made:
        conditions.say("trainer", sorted(made), str(path))


def _is_adapted(name: str, call: ast.Call, tree: ast.Module) -> bool:
    """An adapter is certainly there: get_peft_model, or a trainer that is given a LoraConfig."""
    if name == "get_peft_model":
        return True
    given = next((k.value for k in call.keywords if k.arg == "peft_config"), None)
    if not name.endswith("Trainer") or given is None:
        return False
    if isinstance(given, ast.Name):
        given = _assigned(given.id, tree)
    return isinstance(given, ast.Call) and _simple(given.func) in ("LoraConfig", "PeftConfig")


def _assigned(name: str, tree: ast.Module) -> ast.expr | None:
    """The value of a name that is assigned exactly once, else nothing."""
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    return values[0] if len(values) == 1 else None


def _options(call: ast.Call, path: Path, conditions: Conditions) -> None:
    # Two configurations in a script (of a trainer and of a model) may share a name: the first.
    taken = frozenset(conditions.values)
    for keyword in call.keywords:
        if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
            continue
        value = keyword.value.value
        if keyword.arg == "deepspeed" and isinstance(value, str):
            _deepspeed_file(value, path, conditions)
        elif keyword.arg == "fsdp" and value:
            conditions.say("strategy", ("fsdp",), str(path))
        elif isinstance(value, bool | int | str) and keyword.arg not in {*RESERVED, *taken}:
            conditions.say(keyword.arg, (value,), str(path))


def _deepspeed_file(named: str, path: Path, conditions: Conditions) -> None:
    found = next((p for p in (Path(named), path.parent / named) if p.is_file()), None)
    if found is None:
        conditions.say("strategy", ("deepspeed",), str(path))
        conditions.notes.append(f"{path}: the DeepSpeed file {named} is not here and not read")
    else:
        read_deepspeed(found, conditions)


def _simple(node: ast.expr) -> str:
    """The last part of a dotted name; of ``Trainer[T]`` the name before the bracket."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
