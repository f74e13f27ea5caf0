"""A whole cluster around the real core, in one thread and virtual time: one seed drives everything."""
