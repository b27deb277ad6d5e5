"""Models: from a file to a program of kernel operations.

One file per family, reading top to bottom; `config`, `rope`, `weights` and
`layers` are shared. A layer declares what it remembers (`LayerMemory`) and
which operations it runs; the engine and the cache obey and never ask what kind
of layer it is.
"""
