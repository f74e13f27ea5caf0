"""The command line: one file per command group, heavy imports inside commands. Never decides anything itself."""
