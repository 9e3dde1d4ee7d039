"""milp."""
