"""Starting, watching and stopping the processes of cells; no other module does this."""
