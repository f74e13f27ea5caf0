"""Programs to start from. Each runs against any cluster, and in a test."""
