"""Shadow mode: the same decisions while time passes, beside a real scheduler, touching nothing (docs/shadow.md)."""
