"""This room brings objects to where another mapping wants them."""
