"""This room has what one copy knows, and what it holds in memory beyond the log. It decides nothing."""
