"""This room has the commands that read logs and events: history, epochs, transactions in doubt, what was discarded."""
