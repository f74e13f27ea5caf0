"""This room has what the cluster agrees on in ZooKeeper: a file for each kind of znode.

It has no threads and no drivers.
"""
