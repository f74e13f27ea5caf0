"""This room has the core's part of several sites: sync sites, votes of sites, takeover, mirrors."""
