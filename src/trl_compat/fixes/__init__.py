"""The smallest change for each failure, importable in a training script without the harness.

Each module's ``apply()`` takes no arguments, changes only releases that need it, can be called
again and left in after an upgrade, and returns one sentence about what it did.
"""
