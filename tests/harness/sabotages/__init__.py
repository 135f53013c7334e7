"""Each check has a sabotage: a few lines that break, inside the ranks, just what the check guards.

A check that can never fail makes verdicts lie.  So for every post-condition and precondition of a
reproduction there is a function here, in the module of the reproduction's name, that spoils one
thing in a cell that passes otherwise; the cell must then fail at that very check.

What is in this package is imported by the harness, which reads the declarations, and by the ranks
of a cell (:mod:`.in_cell`), which have the stack and the runtime and nothing of the harness.
"""
