"""Grids: stacks made by rule from the shipped lists of releases and their requirements.

:mod:`.schema` is what matrix.yaml says, :mod:`.rules` says which releases a rule means,
:mod:`.sampling` which combinations are taken, and :mod:`.expansion` makes the stacks of them.
"""
