"""What a replay leaves behind: run directory, metrics, headlines."""
