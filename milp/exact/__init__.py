"""The exact dynamic programme (DP), and its compiled kernels."""
