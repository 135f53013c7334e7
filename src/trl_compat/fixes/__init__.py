"""The smallest change for each failure, importable in a training script without the harness.

Each module's ``apply()`` takes no arguments, changes only releases that need it, may be called
again and left in after an upgrade, and says in one sentence what it did.
"""
