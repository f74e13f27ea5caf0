"""Keeps the shell around the core: it performs effects, reports outcomes as events, and wires adapters together."""
