"""This module says which version of halog this is.

It imports nothing, since `import halog` imports it.
"""

VERSION = "0.1.0"
