"""What Lucid learns: durations, submissions, who may share; regressors, and how they are saved as data."""
