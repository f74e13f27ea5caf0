"""This room says what counts in a log: record types, their bytes, the hash chain, outcomes. It never appends."""
