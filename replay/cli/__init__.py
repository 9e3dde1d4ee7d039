"""replay/cli."""
