"""trl-compat: test which releases of the LLM post-training stack work together.

This module imports nothing on purpose: cells and users' training scripts import
``trl_compat.runtime`` and ``trl_compat.fixes`` on interpreters without the harness's dependencies.
``verify``, ``assert_trains_right`` and ``VerifyCallback`` are imported when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trl_compat.verifying import assert_trains_right as assert_trains_right
    from trl_compat.verifying import verify as verify
    from trl_compat.verifying.callback import VerifyCallback as VerifyCallback

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What training scripts use, imported on demand."""
    if name in ("verify", "assert_trains_right"):
        import trl_compat.verifying as verifying

        return getattr(verifying, name)
    if name == "VerifyCallback":
        import trl_compat.verifying.callback as callback

        return callback.VerifyCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
