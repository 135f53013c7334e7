"""Safe output of untrusted text: one module per kind of output.

File names, notes and messages may come from a pull request.  None of them may move a cursor, start
a workflow command, or become a link.  This package has no heavy imports.
"""
