"""This room has the commands that make, check and renew certificates, and replace the authority."""
