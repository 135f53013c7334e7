"""The regular expressions of symptoms: as Python's, but for what can be made to hang."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.harness import observe
from tests.harness.conftest import HARNESS, ROOT
from trl_compat import advisories
from trl_compat.advisories import patterns
from trl_compat.errors import BadInput

CATALOGUE = advisories.load(ROOT / "advisories", ROOT / "tests" / "reproductions")
PATTERNS = sorted({s.message for a in CATALOGUE.records.values() for s in a.symptoms.values()})
RECORDED = sorted(
    {
        entry["error"]["message"]
        for folder in (observe.FOLDER, HARNESS / "recorded_errors")
        for path in folder.glob("*.json")
        for entry in (lambda read: read if isinstance(read, list) else [read])(
            json.loads(path.read_text(encoding="utf-8"))
        )
        if "error" in entry
    }
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_our_own_patterns_mean_what_they_mean_in_python(pattern: str) -> None:
    assert len(RECORDED) > 20
    found = patterns.compiled(pattern)
    for message in RECORDED:
        for text in (message, f"{message}\n", f"x {message}", f"{message} x", message.upper()):
            assert found(text) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*.*.*=.*)+!b", r"(\w+\s?)*$"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    patterns.compiled(pattern)("a" * 20_000 + "!")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(tensors", "unclosed group"),
        ("(?=x)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        ("(a{1000}){1000}", "exceeds size limit"),
        ("(" * 400 + ")" * 400, "maximum number of nested parentheses"),
        ("x" * 1001, "more than 1000 characters"),
    ],
)
def test_what_this_engine_does_not_know_is_refused_with_the_record(
    project_folder: Path, pattern: str, said: str
) -> None:
    path = project_folder / "advisories" / "saving.yaml"
    text = path.read_text()
    old = '''message: "tensors empty"'''
    assert old in text
    path.write_text(text.replace(old, f"message: {json.dumps(pattern)}"))
    with pytest.raises(BadInput, match=said) as error:
        advisories.load(path.parent, project_folder / "tests" / "reproductions")
    assert "\n" not in str(error.value)
