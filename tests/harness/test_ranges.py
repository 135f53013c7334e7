"""Whether versions are in ranges: yes, no, or not known."""

from __future__ import annotations

import pytest
from packaging.version import Version

from trl_compat.ranges import Answer, holds, inside, of_named, of_stack, outside
from trl_compat.stacks.matrix import Stack

TREE = "git+https://github.com/huggingface/trl@724acb971"


def stack(trl: str) -> Stack:
    return Stack.model_validate(
        {"as_of": "2025-02-10", "torch": "2.4.1", "trl": trl, "transformers": "4.48.3"}
        | {"accelerate": "0.34.2", "lock": "a.txt"}
    )


@pytest.mark.parametrize(
    ("trl", "range_", "examined", "answer"),
    [
        ("0.14.0", ">=0.14", (), Answer.YES),
        ("0.15.0.dev0", ">=0.14", (), Answer.YES),
        ("0.13.0", ">=0.14", (), Answer.NO),
        (TREE, ">=0.14", (), Answer.UNKNOWN),
        (TREE, ">=0.14", ("trl",), Answer.NO),
    ],
)
def test_of_a_commit_that_was_not_examined_a_range_says_nothing(
    trl: str, range_: str, examined: tuple[str, ...], answer: Answer
) -> None:
    assert of_stack(stack(trl), examined)("trl", range_) is answer


def test_a_package_that_a_stack_does_not_have_is_in_no_range() -> None:
    assert of_stack(stack("0.14.0"))("deepspeed", ">=0") is Answer.NO
    assert not outside({"deepspeed": ">=99"}, stack("0.14.0"))
    assert outside({"trl": ">=99"}, stack("0.14.0"))
    assert not outside({"trl": ">=99"}, stack(TREE))


def test_of_a_version_that_was_not_named_nothing_is_known() -> None:
    known = of_named({"trl": Version("0.14.0")})
    ranges = {"trl": ">=0.14", "torch": ">=2"}
    assert holds(ranges, {}, known, lambda _: None) == (Answer.UNKNOWN, ("torch",))
    assert holds({"trl": "<0.14", **{"torch": ">=2"}}, {}, known, lambda _: None)[0] is Answer.NO


def test_a_commit_is_named_by_itself_abbreviated_or_not() -> None:
    have = stack(TREE)
    for named, answer in (("724acb9714a5", Answer.YES), ("724", Answer.YES), ("8", Answer.NO)):
        found, _ = holds({}, {"trl": (named,)}, of_stack(have), have.commit)
        assert found is answer


def test_pre_releases_are_versions_like_others() -> None:
    assert inside(Version("1.0rc1"), "<1.0.1")
    assert not inside(Version("1.0rc1"), ">=1.0")
