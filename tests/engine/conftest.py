"""Makes `scripted`, the model without weights, and `sim` importable from the tests beside it."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
