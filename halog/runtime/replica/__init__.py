"""This room drives one copy: performs its core's effects and serves its reads. It opens no connection."""
