"""How the decision is written as a linear model."""
