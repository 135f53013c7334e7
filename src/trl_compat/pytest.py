"""Marks for other projects' test suites: a test affected by a known failure is expected to fail.

::

    from trl_compat.pytest import known_failure

    @known_failure("ppo-zero3-save", trainer="PPO", zero_stage=3)
    def test_ppo_saves_its_policy(): ...

The mark checks the packages that are installed beside the tests.  If the failure does not apply, it
is an ``xfail`` with a false condition, which changes nothing.  If it applies, the test is expected
to raise the exception of the advisory.  With ``strict`` (the default) the test fails as soon as it
passes, which shows that the mark is no longer needed.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable

import pytest

from trl_compat.conditions import Value
from trl_compat.errors import BadInput
from trl_compat.matching.applies import Match, matches
from trl_compat.shipped import records
from trl_compat.stacks import sources
from trl_compat.stacks.sources.source import Source
from trl_compat.usage.conditions import UsageBuilder


def known_failure(
    failure: str, *, strict: bool = True, source: Source | None = None, **conditions: Value
) -> pytest.MarkDecorator:
    """An ``xfail`` mark if the failure applies to what is installed.

    Args:
        failure: id of an advisory.
        strict: the test must fail; a pass is reported as a failure.
        source: versions to look at in place of this environment.
        conditions: what the test does, e.g. ``trainer="GRPO", zero_stage=3``.  A condition of the
            advisory that is not named counts as met: whoever marks a test says it runs into it.

    Raises:
        BadInput: there is no such failure.
    """
    record = records.shipped_record(failure)
    said = UsageBuilder()
    for name, value in conditions.items():
        said.say(name, (value,), f"known_failure('{failure}')")
    try:
        have = source or sources.installed()
    except BadInput:  # no TRL there, or none of a known version: nothing is known to fail
        return pytest.mark.xfail(False, reason=f"{failure}: not known to apply here")
    found = [m for m in matches(record, have, said.values) if not m.unknown and m.hidden_by is None]
    reason = f"{record.id}: {record.title}"
    if not found:
        return pytest.mark.xfail(False, reason=reason)
    return pytest.mark.xfail(True, reason=reason, raises=_raises(found), strict=strict)


def _raises(found: Iterable[Match]) -> type[BaseException] | tuple[type[BaseException], ...]:
    """The exceptions of the symptoms; any where one is not built in, or no exception at all."""
    kinds = [getattr(builtins, match.block.exception, None) for match in found]
    known = tuple(k for k in kinds if isinstance(k, type) and issubclass(k, BaseException))
    return known if len(known) == len(kinds) else BaseException
