"""The results of a replay: run directory, metrics, headlines."""
