"""Jobs on shared units: the table of xi and its estimates, memory, smaller batches."""
