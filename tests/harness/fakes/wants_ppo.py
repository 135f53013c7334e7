"""Looks for a trainer that newer releases no longer have, as reproductions do."""

from trl_compat.runtime import trainers


def scenario(rank):
    trainers.find("PPO")
    rank.check("found", True, "")
