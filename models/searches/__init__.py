"""Workloads whose jobs depend on what comes of others: searches that submit and cancel jobs on the way."""
