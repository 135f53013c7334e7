"""Does what I have work?  The cells of the matrix in an environment as it is.

Nothing is resolved, installed or downloaded, and nothing in the environment is changed.
"""

from __future__ import annotations
