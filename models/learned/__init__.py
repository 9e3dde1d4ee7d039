"""Models that Lucid learns: durations, submissions, sharing scores; and regressors, saved as data."""
