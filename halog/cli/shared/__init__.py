"""This room has what several commands use: connections, options, output, values. It has no command of its own."""
