"""This room has the threads around the copies of a node: tails of logs, pushes, snapshots, leases, refreshes of
tables.
"""
