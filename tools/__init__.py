"""Tools of the project, run by `make`; never part of the package."""
