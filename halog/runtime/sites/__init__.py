"""This room has what a node does about other sites: mirrors, switches, takeover, votes of sites."""
