"""Text of others as text, wherever it is printed: a module for each kind of place.

Names of files, notes and messages may come from a pull request.  None of them may move a cursor,
start a workflow command, or become a link.  Free of heavy imports.
"""
