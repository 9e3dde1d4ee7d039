"""Everything that decides a result, and which options go together."""
