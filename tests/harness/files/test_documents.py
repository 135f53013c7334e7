"""A YAML file may be anybody's: what nobody writes by hand is refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.conftest import ROOT
from trl_compat.errors import BadInput
from trl_compat.files import documents
from trl_compat.stacks import matrix

TEN = ",".join("x" * 10)
LAUGHS = f"a: &a [{TEN}]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [*{before}, *{before}]}}\n"
    for before, name in zip("abcdefghijklmnopqrstuvw", "bcdefghijklmnopqrstuvwx", strict=True)
)

EXCESS = {
    "laughs": (LAUGHS, ":6: more than 200000 values after expanding aliases"),
    "merges": (MERGES, "values after expanding aliases"),
    "itself": ("a: &a [1, *a]", ":1: '*a' refers to itself"),
    "deep": ("[" * 100_000, ":1: more than 30 levels deep"),
    "deep by lines": ("\n".join(" " * n + "a:" for n in range(99)), ":31: more than 30 levels"),
    "deep questions": ("? " * 5000 + "x", "more than 30 levels deep"),
    "long": ("# " + "x" * 3_000_000, "3000002 characters; the limit is 2000000"),
    "wide": ("[" + "x," * 300_000 + "]", "more than 200000 values"),
    "5,000 digits": ("a: " + "9" * 5000, ":1: a number of 5000 characters"),
    "base 60": ("a: 1" + ":59" * 300_000, ":1: a number of 900001 characters"),
    "a day of no calendar": ("a: 2024-13-45", "not valid YAML: month must be in 1..12"),
    "no text": ("a: \a", "not valid YAML: unacceptable character"),
    "a list as key": ("? [a]\n: b", ":1: not valid YAML: found unhashable key"),
    "code": ("!!python/name:os.system x", "not valid YAML: could not determine a constructor"),
    "nobody": ("a: *b", ":1: not valid YAML: found undefined alias"),
    "two": ("a: 1\n---\nb: 2", "not valid YAML: but found another document"),
}


@pytest.mark.parametrize("name", EXCESS)
def test_what_nobody_writes_by_hand_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    text, said = EXCESS[name]
    path = tmp_path / "matrix.yaml"
    with pytest.raises(BadInput) as error:
        documents.yaml_of(text, path)
    assert said in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        documents.load(path, matrix.Matrix)
    assert said in str(error.value)


def test_aliases_in_measure_are_what_they_stand_for() -> None:
    text = "a: &a {k: 1}\nb: {<<: *a, l: 2}\nc: [*a, *a]\n"
    assert documents.yaml_of(text, Path("x")) == {
        "a": {"k": 1},
        "b": {"k": 1, "l": 2},
        "c": [{"k": 1}, {"k": 1}],
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: ./configurations/of/a/project/with/long/names/of/folders/zero3.json",
        "a: " + "0123456789abcdef" * 4,
        'a: "' + "1" * 100 + '"',
        "a: " + "1 " * 100,
    ],
)
def test_what_only_looks_like_a_number_is_a_text(text: str) -> None:
    assert isinstance(documents.yaml_of(text, Path("x"))["a"], str)


def test_reading_yaml_alone_loads_no_pydantic() -> None:
    code = "import sys, trl_compat.files.documents; print('pydantic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "False\n"
