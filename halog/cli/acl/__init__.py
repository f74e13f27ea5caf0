"""This room has the commands that say to whom what halog keeps elsewhere belongs, and change that."""
