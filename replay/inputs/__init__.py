"""From options to the inputs of a replay: the trace, the jobs, and which jobs may share."""
