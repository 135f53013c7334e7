"""What goes into a cell: the code that every rank runs around a scenario.

Promises: it imports the standard library and the stack under test only, runs on every Python that
a stack may have (3.9 and later), and changes nothing of what was resolved.  The harness copies this
package and :mod:`trl_compat.fixes` into a folder of their own and puts that folder, and nothing
else, on the path of a cell.
"""
