"""Measuring: training logs, two commands alone and together, GPUs. Two tables come of it: ratios and profiles."""
