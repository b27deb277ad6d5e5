"""Which prefix is where. No tensors: pages and states are slot numbers."""

from strata.cache.lease import Answer, Full, Holder, Lease, Run, Wait
from strata.cache.prefix import PrefixCache

__all__ = ["Answer", "Full", "Holder", "Lease", "PrefixCache", "Run", "Wait"]
