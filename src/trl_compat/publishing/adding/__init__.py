"""A new failure: the files to fill in, the cells to run, and what is still missing."""
