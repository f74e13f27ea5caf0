"""This room follows the log on a copy that is not active. It never acknowledges what it has not got."""
