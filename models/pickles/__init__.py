"""Pickled tables, read without running anything that they hold (docs/decisions/0006)."""
