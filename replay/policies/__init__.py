"""replay/policies."""
