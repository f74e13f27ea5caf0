"""This room has what several rooms read or write in ZooKeeper: registrations, tables, wishes, site ownership.

A znode that one room alone uses is that room's. It has no threads and no drivers.
"""
