"""This machine: starting, containing and ending processes, and describing the host."""
