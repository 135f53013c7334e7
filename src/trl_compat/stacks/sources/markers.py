"""Whether a marker (``sys_platform == 'linux'``) applies to this Python on this machine."""

from __future__ import annotations

from functools import lru_cache

from packaging.markers import InvalidMarker, Marker

from trl_compat.errors import BadInput

LONGEST = 10_000
MOST = 5000  # different ones in one run of a command


def applies(text: str, where: str) -> bool:
    """Whether it holds where no extra is asked for.

    Raises:
        BadInput: it is no marker.
    """
    if _evaluated.cache_info().misses > MOST:
        raise BadInput(
            f"{where}: more than {MOST} different markers; this is more than a stack can have"
        )
    try:
        return _evaluated(text)
    except (InvalidMarker, ValueError, KeyError, TypeError, RecursionError):
        # packaging refuses more than it names: versions that are none, names that it does not know.
        raise BadInput(f"{where}: invalid marker; see PEP 508") from None


@lru_cache(maxsize=10_000)
def _evaluated(text: str) -> bool:
    if len(text) > LONGEST:
        raise ValueError("too long")
    # uv writes extras that exclude each other as `extra == 'extra-<n>-<project>-<name>'`.
    return Marker(text).evaluate({"extra": ""})
