"""Running cells: the campaign, its store, its engine and its display."""
