"""Makes certificates, lists and checks them, and changes the authority that signs them. It connects to nobody.

What needs the package `cryptography` imports it where the module is imported; `identity` and `directory` need the
standard library only.
"""
