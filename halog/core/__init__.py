"""The core decides: events go in, effects come out. It has no clock, chance, threads or I/O; all of it runs in the
simulation."""
