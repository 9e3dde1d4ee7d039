"""Node traces, their files and statistics."""
