"""What no policy can beat: bounds on outcome, completion times and makespan; formulas and proofs in docs/bounds.md."""
