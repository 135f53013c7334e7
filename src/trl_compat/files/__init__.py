"""Files of the project and of users, read as text, YAML or models, and written atomically."""
