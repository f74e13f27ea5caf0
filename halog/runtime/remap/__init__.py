"""This room moves objects to where another mapping wants them."""
