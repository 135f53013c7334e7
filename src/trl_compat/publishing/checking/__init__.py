"""The ranges of the advisories against what was executed: contradictions, edges, edits."""
