"""This room has the commands for the whole cluster: nodes, status, configuration, zones, recovery."""
