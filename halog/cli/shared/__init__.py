"""This room has the shared parts of commands: connections, options, output, values. It has no command of its own."""
