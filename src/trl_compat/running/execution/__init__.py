"""Starting, watching and ending the processes of cells; nothing else in the harness does."""
