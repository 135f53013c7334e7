"""trl-compat: test which releases of the LLM post-training stack work together.

This module imports nothing on purpose: cells and users' training scripts import
``trl_compat.runtime`` and ``trl_compat.fixes`` on interpreters without the harness's dependencies.
"""

__version__ = "0.1.0"
