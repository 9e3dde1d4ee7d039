"""From options to what is replayed: the trace, the jobs, and who may share."""
