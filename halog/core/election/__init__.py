"""This room leads from "the active is gone" to serving: candidates, challenges, doubt in the log, opening an epoch."""
