"""Backends: the registry, the solver process, and one module per solver."""
