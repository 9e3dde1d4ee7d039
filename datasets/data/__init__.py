"""datasets/data."""
