"""What the Monitor shows: the newest state of engine, memory and machine, pushed once a second.

`Pulse` sends it, `snapshot` says what it is made of, `rates` what is compared with a second ago,
`machine` what the computer does, `definitions` what each figure means. `cache` tells what is kept,
`about` what is served.
"""

from strata.server.monitor.about import about
from strata.server.monitor.cache import CacheTree
from strata.server.monitor.pulse import Pulse

__all__ = ["CacheTree", "Pulse", "about"]
