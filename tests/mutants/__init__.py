"""Deliberate breakages of the core: a simulation that does not find them proves nothing."""
