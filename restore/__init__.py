"""This package puts histories together again that went on apart (M2, X3): plans are pure, and performed elsewhere."""
