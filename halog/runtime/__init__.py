"""This package is the shell around the core: performs effects, reports outcomes as events, and wires adapters together."""
