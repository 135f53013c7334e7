"""Asks for more memory than any machine has."""


def scenario(rank):
    import torch

    torch.empty(10**17)
