"""The pure core: events in, effects out. No clock, chance, threads or I/O; everything here runs in the simulation."""
