"""New upstream releases: the stacks that they make, what changes in them, and who is to blame."""
