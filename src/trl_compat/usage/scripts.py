"""Conditions from a training script, read without running it.

Only literals that hold on every code path count: which trainers are created, options given as
constants, an adapter that is always present.  Values that come from the command line, are computed,
or depend on an ``if`` stay unspecified.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trl_compat.errors import BadInput
from trl_compat.files import reading
from trl_compat.usage.conditions import UsageBuilder
from trl_compat.usage.configs import nested
from trl_compat.usage.vocabulary import Vocabulary

RESERVED = ("trainer", "strategy", "zero_stage", "fsdp_version", "peft", "device", "world_size")
# What may not happen, or not to everybody who comes by.
BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.While, ast.For, ast.Match, ast.BoolOp, ast.Lambda)
# What a walk looks at, and what it need not go into.
NOTED = (
    *(ast.Call, ast.ImportFrom, ast.Import, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign),
    *(ast.Dict, ast.List, ast.Tuple, ast.Set, ast.IfExp, ast.Return, ast.NamedExpr),
)
LEAVES = (ast.expr_context, ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.cmpop, ast.alias)
MOST_NODES = 60_000  # a training script has a few thousand
MOST_MEANINGS = 20  # of one name
PLAIN = ("Trainer", "Seq2SeqTrainer")  # transformers' own


@dataclass(frozen=True)
class Call:
    """A call; ``names`` are what the called thing may be, ``sure`` that it is made."""

    names: frozenset[str]
    node: ast.Call
    sure: bool


def read(path: Path, conditions: UsageBuilder) -> None:
    """The conditions that a script states.

    Raises:
        BadInput: no Python, or a contradiction to what was named elsewhere.
    """
    who = str(path)
    script = _Script(_tree(path), conditions.words, who)
    made, strangers = script.trainers()
    if strangers:
        said = ", ".join(sorted(strangers)[:5])
        conditions.notes.append(
            f"{path}: {said[:200]} is not a TRL trainer; the trainer is unspecified"
        )
    elif made:
        conditions.say("trainer", sorted(made), who)
    if script.is_adapted():
        conditions.say("peft", (True,), who)
    for name, value in script.options().items():
        if name == "deepspeed":
            _deepspeed(value, path, conditions)
        elif name == "fsdp":
            if value:
                conditions.say("strategy", ("fsdp",), who)
        else:
            conditions.state(name, (value,), who)


def _tree(path: Path) -> ast.Module:
    text = reading.text_of(path, most=reading.LARGEST_SCRIPT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise BadInput(f"{path}{line}: not valid Python") from None
    except (ValueError, RecursionError, MemoryError):
        raise BadInput(f"{path}: unreadable Python: nested too deep") from None
    return tree


def _deepspeed(value: object, path: Path, conditions: UsageBuilder) -> None:
    if isinstance(value, str) and value:
        nested(value, path, conditions)


class _Script:
    """A script's calls, with names for what is imported or subclassed under another one."""

    def __init__(self, tree: ast.Module, words: Vocabulary, who: str) -> None:
        self.words, self.who = words, who
        self.calls: list[ast.Call] = []
        self.sure: set[int] = set()
        self.meant: dict[str, set[str]] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.set_later: set[str] = set()
        self.passed_on: list[str] = []
        self.real: dict[str, frozenset[str]] = {}
        self._walk(tree)
        self.found = [
            Call(self._real(_simple(call.func)), call, id(call) in self.sure) for call in self.calls
        ]

    def trainers(self) -> tuple[set[str], set[str]]:
        """The trainers that are used, under their names, and those that are nobody's we know."""
        named = {name for call in self.found for name in call.names}
        named |= {real for name in self.passed_on for real in self._real(name)}
        named = {name for name in named if name.endswith("Trainer") and name not in PLAIN}
        made = {self.words.trainer(name) for name in named}
        strangers = {name for name in named if self.words.trainer(name) is None}
        return {name for name in made if name}, strangers

    def is_adapted(self) -> bool:
        """Whether every trainer certainly gets an adapter."""
        trainers = [c for c in self.found if any(name.endswith("Trainer") for name in c.names)]
        return bool(trainers) and all(
            self._given_an_adapter(call.node) or self._given_an_adapted(call.node)
            for call in trainers
        )

    def options(self) -> dict[str, bool | int | str]:
        """Options that every configuration in the script sets, to the same constant."""
        found: dict[str, list[object]] = {}
        configurations = [call for call in self.found if any(map(self._is_config, call.names))]
        for call in configurations:
            for keyword in call.node.keywords:
                if keyword.arg is not None:
                    found.setdefault(keyword.arg, []).append(_constant(keyword.value, call.sure))
        taken = {*RESERVED, *self.set_later}
        return {
            name: values[0]
            for name, values in found.items()
            if isinstance(values[0], bool | int | str) and name not in taken
            # One that leaves it out may have another default.
            if len(values) == len(configurations)
            if all(type(v) is type(values[0]) and v == values[0] for v in values)
        }

    def _is_config(self, name: str) -> bool:
        mine = self.words.trainer(name.removesuffix("Config")) is not None
        return name.endswith("TrainingArguments") or (name.endswith("Config") and mine)

    def _given_an_adapter(self, call: ast.Call) -> bool:
        return _called(self._value(_argument(call, "peft_config"))) in ("LoraConfig", "PeftConfig")

    def _given_an_adapted(self, call: ast.Call) -> bool:
        model = _argument(call, "model") or next(iter(call.args), None)
        return _called(self._value(model)) == "get_peft_model"

    def _value(self, given: ast.expr | None) -> ast.expr | None:
        """An expression, or what was last assigned to a name, if nothing may have come between."""
        if not isinstance(given, ast.Name):
            return given
        values = self.assigned.get(given.id, [])
        return values[-1] if values and all(id(value) in self.sure for value in values) else None

    def _walk(self, tree: ast.Module) -> None:
        # Depth first, so that assignments come in the order in which they stand.
        todo: list[tuple[ast.AST, bool]] = [(tree, True)]
        count = 0
        while todo:
            node, sure = todo.pop()
            count += 1
            if count > MOST_NODES:
                raise BadInput(f"{self.who}: too long for a training script; use options instead")
            if isinstance(node, NOTED):
                self._note(node)
            if isinstance(node, ast.Call) and sure:
                self.sure.add(id(node))
            below = sure and not (isinstance(node, BRANCHES) and not _is_main(node))
            children = [c for c in ast.iter_child_nodes(node) if not isinstance(c, LEAVES)]
            todo += [(child, below) for child in reversed(children)]

    def _note(self, node: ast.AST) -> None:
        named = (name for name in self._passed_on(node) if name.endswith("Trainer"))
        self.passed_on += [name for name in named if self.words.trainer(name) or name in self.meant]
        match node:
            case ast.Call():
                self.calls.append(node)
            case ast.ImportFrom() | ast.Import():
                for alias in node.names:
                    if alias.asname:
                        self.meant.setdefault(alias.asname, set()).add(alias.name)
            case ast.ClassDef():
                bases = {base for base in map(_simple, node.bases) if base}
                if any(base.endswith("Trainer") or base in self.meant for base in bases):
                    self.meant.setdefault(node.name, set()).update(bases)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and node.value is not None:
                        self.assigned.setdefault(target.id, []).append(node.value)
                    if isinstance(target, ast.Attribute):
                        self.set_later.add(target.attr)

    def _passed_on(self, node: ast.AST) -> Iterator[str]:
        """Trainer classes that are handed on here: they may be called under another name."""
        match node:
            case ast.Call():
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                if _simple(node.func) in ("isinstance", "issubclass"):
                    given = []
                if _simple(node.func) == "getattr":
                    yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))
            case ast.Dict():
                given = node.values
            case ast.List() | ast.Tuple() | ast.Set():
                given = node.elts
            case ast.IfExp():
                given = [node.body, node.orelse]
            case ast.Assign() | ast.AnnAssign() | ast.Return() | ast.NamedExpr():
                given = [node.value] if node.value else []
            case _:
                given = []
        yield from map(_simple, given)

    def _real(self, name: str) -> frozenset[str]:
        """What a name stands for: the class that a class of the script extends, in the end."""
        if name not in self.real:
            found, todo, seen = set(), [name], set()
            while todo:
                one = todo.pop()
                if one in seen:
                    continue
                seen.add(one)
                bases = self.meant.get(one)
                if bases is None or (one.endswith("Trainer") and self.words.trainer(one)):
                    found.add(one)
                else:
                    todo.extend(bases)
            # A name for so many things stands for none of them.
            self.real[name] = frozenset(found if len(found) <= MOST_MEANINGS else {name})
        return self.real[name]


def _is_main(node: ast.AST) -> bool:
    """``if __name__ == "__main__":`` is on every way through a script."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and _simple(test.left) == "__name__"


def _simple(node: ast.expr) -> str:
    """The last part of a dotted name; of ``Trainer[T]`` the name before the bracket."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _called(node: ast.expr | None) -> str:
    return _simple(node.func) if isinstance(node, ast.Call) else ""


def _constant(node: ast.expr, sure: bool) -> object:
    """The value of a constant; None for what is computed, or may not be reached."""
    return node.value if sure and isinstance(node, ast.Constant) else None
