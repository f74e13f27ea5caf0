"""This room has clocks, pools and deadlines. It knows nothing of halog's domain."""
