"""Jobs on shared units: xi measured and estimated, memory, smaller batches."""
