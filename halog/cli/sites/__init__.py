"""This room has the commands for sites: who serves, mirrors, switches."""
