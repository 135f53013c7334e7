"""trl-compat: which releases of the LLM post-training stack work together, found by running them.

This module stays empty of imports on purpose: cells and users' training scripts import
``trl_compat.runtime`` and ``trl_compat.fixes`` on interpreters that have none of the harness's
own dependencies.
"""

__version__ = "0.1.0"
