"""What solves a model: registry, solver process, and one module per solver."""
