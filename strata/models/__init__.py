"""Models: from a file to a program of kernel operations.

`loader` has the families; `config`, `rope`, `weights` and `layers` are what they share. A layer
declares what it remembers (`LayerMemory`) and which operations it runs; the engine and the cache
obey and never ask what kind of layer it is.
"""
