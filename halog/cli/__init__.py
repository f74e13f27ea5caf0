"""This package has the command line: one file per command group, heavy imports inside commands. It never decides
anything itself."""
