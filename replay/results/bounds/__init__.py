"""Bounds that no policy can exceed, on outcome, completion times and makespan; formulas and proofs: docs/bounds.md."""
