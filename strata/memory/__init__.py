"""Bytes and where they are: arenas of equal slots, record layouts, the memory plan.

Knows no models, no kernels and no cache: a slot is a number and some bytes.
"""
