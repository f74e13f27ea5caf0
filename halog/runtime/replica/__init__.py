"""This room drives one copy: performs its core's effects and serves its reads. It knows no network."""
