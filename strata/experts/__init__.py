"""Which expert is where: records on disk, slots in memory, and what is worth a slot.

Knows no model and no engine: a layer's experts are numbers, their bytes what the kernels packed.
"""
