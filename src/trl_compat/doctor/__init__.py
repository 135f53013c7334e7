"""Doctor: which known failures apply to what someone has, from records alone, in a moment.

Nothing here imports the models of :mod:`trl_compat.advisories` (or anything else that takes long to
import): it works on ``shipped/advisories.json`` and ``shipped/results.json``, which are compiled
from the advisories and from reports/results.json, go into the wheel, and are compared with their
sources by a test.
"""
