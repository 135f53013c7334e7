"""Data that the package brings along (releases, requirements, names), with its readers."""
