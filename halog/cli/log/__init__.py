"""This room has the commands for logs and events: history, epochs, transactions in doubt, what was discarded."""
