"""A verdict reads as a text, as data and as an assertion; no stack is needed for that."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trl_compat.verifying import Check, TrainsWrong, Verdict
from trl_compat.verifying.verdict import NOT_CHECKED, OK, VIOLATED, merged

FINE = Check("accumulation", OK, "as it should be", {"projection": 1.0})
WRONG = Check("step", VIOLATED, "it did not move", {"relative_error": 1e-9}, "lm_head.weight")
UNKNOWN = Check("reference", NOT_CHECKED, "this trainer has no reference model")


def verdict(*checks: Check) -> Verdict:
    return Verdict(checks, {"trainer": "SFTTrainer", "ranks": 2}, ("dropout was off",), 1.5)


def test_a_verdict_without_violation_is_ok_and_hands_itself_on() -> None:
    found = verdict(FINE, UNKNOWN)
    assert found.ok
    assert found.raise_if_violated() is found
    assert "no violation in 1 checks" in str(found)


def test_a_violation_is_raised_with_the_whole_verdict() -> None:
    found = verdict(FINE, WRONG)
    with pytest.raises(TrainsWrong, match=r"trains WRONG: step[\s\S]*lm_head\.weight") as raised:
        found.raise_if_violated()
    assert raised.value.verdict is found
    assert isinstance(raised.value, AssertionError)
    assert not found.ok


def test_a_verdict_that_checked_nothing_is_not_ok_and_raises_nothing() -> None:
    found = verdict(UNKNOWN, Check("restored", OK, "as before"))
    assert not found.ok
    found.raise_if_violated()
    assert "nothing could be checked" in str(found)


def test_of_several_ranks_the_worst_is_told_with_its_rank() -> None:
    other = Check("accumulation", VIOLATED, "another gradient")
    (told,) = merged([[FINE], [other]])
    assert (told.outcome, told.message) == (VIOLATED, "rank 1: another gradient")
    (told,) = merged([[FINE], [Check("accumulation", NOT_CHECKED, "no step")]])
    assert told.outcome == NOT_CHECKED


def test_a_check_is_found_by_its_name_and_written_as_data() -> None:
    found = verdict(FINE, WRONG)
    assert found["step"] is WRONG
    with pytest.raises(KeyError):
        found["merged"]
    data = json.loads(json.dumps(found.as_dict()))
    assert data["ok"] is False
    assert data["checks"][1]["first"] == "lm_head.weight"


def test_importing_it_imports_no_other_package() -> None:
    code = (
        "import sys, trl_compat; trl_compat.verify; trl_compat.assert_trains_right; "
        "known = {'trl_compat', *sys.stdlib_module_names}; "
        "names = {name.partition('.')[0] for name in sys.modules}; "
        "assert not {'torch', 'numpy', 'transformers', 'pydantic', 'pytest'} & names, names"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_check_is_refused_before_the_trainer_is_touched() -> None:
    from trl_compat import verify

    with pytest.raises(ValueError, match="no such check: speed"):
        verify(None, checks=("speed",))
