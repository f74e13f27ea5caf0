"""This room knows who is up: registration, challenges, addresses, the quorum of nodes, the witness, cut lines."""
