"""This room says in which state another node is, as one process sees it. It never decides who is up."""
