"""Every outcome explains itself."""

from __future__ import annotations

from trl_compat.cells.outcome import Outcome


def test_every_outcome_has_a_sentence_and_a_mark() -> None:
    for outcome in Outcome:
        assert outcome.sentence.endswith(".")
        assert outcome.mark in ("✅", "❌", "⚠️", "—")
    assert [o for o in Outcome if o.mark == "✅"] == [Outcome.PASS]
