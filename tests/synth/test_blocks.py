"""Random blocks of every format against the `gguf` package's dequantisation."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from strata.synth import blocks

COLS = 512


@pytest.mark.parametrize("kind", blocks.FORMATS)
@pytest.mark.parametrize("spread", [0.02, 3.0])
def test_values_have_the_spread_asked_for(kind: str, spread: float) -> None:
    rows = np.full(600, spread, np.float32)
    rows[100:200] = 0
    data = blocks.rows(Type[kind], COLS, rows, 0.0, np.random.default_rng(1))
    assert data.shape == (600, blocks.row_bytes(Type[kind], COLS))
    values = gguf.dequantize(data, Type[kind])
    assert values.shape == (600, COLS) and np.isfinite(values).all()
    assert (values[100:200] == 0).all()
    live = np.delete(values, slice(100, 200), 0)
    assert abs(live.std() / spread - 1) < 0.02
    assert abs(live.mean()) < 0.01 * spread
    by_row = live.std(1) / spread  # no row is much smaller or larger
    assert by_row.min() > 0.5 and by_row.max() < 1.7
    assert live.reshape(-1, 16).mean(1).std() < 0.4 * spread  # parts are centred by themselves
    different = len(np.unique(live[:, 3]))
    assert different == 3 if kind.startswith("TQ") else different >= 15


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_mean(kind: str) -> None:
    rows = np.full(200, 0.1, np.float32)
    data = blocks.rows(Type[kind], COLS, rows, -4.0, np.random.default_rng(1))
    values = gguf.dequantize(data, Type[kind])
    assert abs(values.mean() + 4) < 0.01 and abs(values.std() - 0.1) < 0.01


def test_what_fits() -> None:
    assert blocks.fitting(Type.Q4_K, 512) == Type.Q4_K
    assert blocks.fitting(Type.Q4_K, 320) == Type.Q8_0
    assert blocks.fitting(Type.Q4_0, 80) == Type.F16
