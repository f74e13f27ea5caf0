"""This room is the write path of one epoch: versions, votes, pushes, acknowledgements, the sync set.

It never elects.
"""
