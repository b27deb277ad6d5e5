"""Model files made up: checkpoints with random weights, and mixtures made of dense models.

They let one measure a machine before a download, and test where no model can be had. Knows the
files that it writes, as llama.cpp and transformers read them; not how Strata reads them.
"""
