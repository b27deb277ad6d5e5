"""The HTTP API: bytes from a socket to requests of the engine, and its events back to bytes.

Sees of the engine only what service.py names, and imports without torch.
"""
