"""Rank 1 finds something in the place where it would write its record."""


def scenario(rank):
    rank.check("started", True, "")
    if not rank.main:
        (rank.folder / "rank1.draft").mkdir()
