"""Does this trainer train right?  ``trl_compat.verify(trainer)`` in anybody's training script.

Runs on Python >= 3.9 with the packages of the trainer alone, and imports none of them until a
trainer is checked.
"""

from .entry import assert_trains_right as assert_trains_right
from .entry import verify as verify
from .verdict import Check as Check
from .verdict import TrainsWrong as TrainsWrong
from .verdict import Verdict as Verdict
