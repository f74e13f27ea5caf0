"""This room keeps objects on a disk in RocksDB, and knows how far a store was written.

It never decides what is kept.
"""
