"""Lets these tests import `sim`, the toy model beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
