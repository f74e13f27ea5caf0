"""This room says where a key belongs: the mapping and the directory. It never moves an object."""
