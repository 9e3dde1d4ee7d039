"""Several replays as one study: comparisons of variants, sweeps over options, and evaluations of a machine.

A study is a folder of runs, each named by the digest of its configuration. So a finished run is reused, and a killed
study continues where it stopped.
"""
