"""Writes to a device that is always full, as a disk may be."""


def scenario(rank):
    with open("/dev/full", "w") as file:
        file.write("x")
