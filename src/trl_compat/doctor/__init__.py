"""Doctor: the known failures that apply to a stack, from advisories alone and within a second.

Nothing here imports the models of :mod:`trl_compat.advisories` (or anything else that is slow to
import).  Doctor reads ``shipped/advisories.json`` and ``shipped/results.json``, which are compiled
from the advisories and from reports/results.json and included in the wheel; a test compares them
with their sources.
"""
