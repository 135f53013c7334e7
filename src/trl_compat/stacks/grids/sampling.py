"""Which combinations of the axes are taken: all, a covering array, or one axis at a time.

Rows are tuples of places, one for each axis.  The covering arrays are made by the library
``covertable``, whose order of rows depends on the seed and on nothing of the machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache

from trl_compat.errors import BadInput
from trl_compat.stacks.grids.schema import Sample

LARGEST = 5_000
# Rows times combinations to cover: a covering array of more takes longer than some seconds.
MOST_WORK = 20_000_000

Place = tuple[int, ...]


def size(sizes: Sequence[int], sample: Sample) -> int:
    """How many rows a sample has at least; exact for those that are no covering array."""
    match sample:
        case Sample.FULL:
            return math.prod(sizes)
        case Sample.ONE_AT_A_TIME:
            return 1 + sum(count - 1 for count in sizes)
        case _:
            return math.prod(sorted(sizes)[-sample.strength :])


def too_large(sizes: Sequence[int], sample: Sample) -> bool:
    """Whether a sample has more rows than a grid may have, or takes too long to make."""
    rows = size(sizes, sample)
    if not sample.strength:
        return rows > LARGEST
    tuples = sum(math.prod(some) for some in itertools.combinations(sizes, sample.strength))
    return rows > LARGEST or rows * tuples > MOST_WORK


def refusal(sizes: Sequence[int], sample: Sample, seed: int) -> str:
    """Why a sample is refused, and which one would fit; empty if it fits."""
    if not too_large(sizes, sample):
        return ""
    least = "at least " if sample.strength else ""
    text = f"'sample: {sample}' gives {least}{size(sizes, sample):,} stacks; "
    slow = size(sizes, sample) <= LARGEST
    text += "that takes too long to work out" if slow else f"a grid may have {LARGEST:,}"
    for other in (Sample.PAIRWISE, Sample.ONE_AT_A_TIME):
        if other is not sample and not too_large(sizes, other):
            count = len(rows(tuple(sizes), other, seed, (0,) * len(sizes)))
            return f"{text}; 'sample: {other}' gives {count:,}"
    return f"{text}; give its axes fewer values"


def rows(sizes: Place, sample: Sample, seed: int, base: Place) -> Sequence[Place]:
    """The rows of a sample, in a fixed order.

    Args:
        sizes: the number of values of each axis.
        base: for one axis at a time: the place of each axis while another one moves.

    Raises:
        BadInput: the library for covering arrays is not installed.
    """
    match sample:
        case Sample.FULL:
            return list(itertools.product(*map(range, sizes)))
        case Sample.ONE_AT_A_TIME:
            found = [base]
            for axis, count in enumerate(sizes):
                for place in range(count):
                    found.append((*base[:axis], place, *base[axis + 1 :]))
            return list(dict.fromkeys(found))
        case _:
            return _covering(sizes, sample.strength, seed)


@cache
def _covering(sizes: Place, strength: int, seed: int) -> Sequence[Place]:
    if len(sizes) <= strength:
        return list(itertools.product(*map(range, sizes)))
    try:
        import covertable
    except ImportError:
        raise BadInput(
            "a grid with a covering sample needs the package covertable; install trl-compat with "
            "its extra: python -m pip install '.[matrix]' in a clone"
        ) from None
    made = covertable.make(
        [list(range(count)) for count in sizes],
        strength=strength,
        sorter=covertable.sorters.hash,
        salt=str(seed),
    )
    return sorted(tuple(row) for row in made)


def without(
    kept: Sequence[Place],
    sizes: Place,
    strength: int,
    left_out: Callable[[Place], bool],
) -> list[Place]:
    """The rows that are not left out, and for what those alone covered the first row that may stay.

    Without this an exclude would take combinations with it that it does not name.
    """
    stay = [row for row in kept if not left_out(row)]
    gone = [row for row in kept if left_out(row)]
    if not strength or not gone:
        return stay
    axes = list(itertools.combinations(range(len(sizes)), min(strength, len(sizes))))

    def covered(row: Place) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
        return {(some, tuple(row[axis] for axis in some)) for some in axes}

    have = set().union(*map(covered, stay)) if stay else set()
    for row in gone:
        for some, values in sorted(covered(row) - have):
            fixed = dict(zip(some, values, strict=True))
            free = [[fixed[a]] if a in fixed else range(n) for a, n in enumerate(sizes)]
            replacement = next((r for r in itertools.product(*free) if not left_out(r)), None)
            if replacement is not None:
                stay.append(replacement)
                have |= covered(replacement)
    return stay
