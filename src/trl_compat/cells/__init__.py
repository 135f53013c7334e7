"""The pure core: the cells, what is expected of them, and the verdict on what was observed."""
