"""Job tables of other systems, one reader a format."""
