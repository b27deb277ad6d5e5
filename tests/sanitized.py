"""Runs pytest with another build of the native module: python tests/sanitized.py FOLDER ARGUMENTS.

The module must be known before strata.kernels looks for its own.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401  # its OpenMP first (cpu/module.cpp)

NAME = "strata.kernels._cpu"


def main() -> int:
    (path,) = Path(sys.argv[1]).glob("_cpu*.so")
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None and spec.loader is not None
    sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(pytest.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
