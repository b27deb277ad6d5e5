"""The generator against numpy's, and its numbers' distribution."""

import numpy as np
import pytest

from strata.engine.philox import block, uniform


@pytest.mark.parametrize("key", [(0, 0), (1, 2), (2**64 - 1, 12345678901234567)])
@pytest.mark.parametrize("counter", [0, 1, 7, 2**64 - 2])
def test_words_are_those_of_numpy(key: tuple[int, int], counter: int) -> None:
    # numpy adds one to the counter before it makes the first block.
    generator = np.random.Philox(
        key=np.array(key, dtype=np.uint64), counter=np.array([counter, 5, 6, 7], dtype=np.uint64)
    )
    expected = tuple(int(word) for word in generator.random_raw(4))
    assert block(key, (counter + 1, 5, 6, 7)) == expected


def test_uniform_depends_on_seed_and_index_only() -> None:
    assert uniform(3, 4) == uniform(3, 4)
    assert len({uniform(seed, index) for seed in range(40) for index in range(40)}) == 1600
    assert uniform(-1, 0) == uniform(2**64 - 1, 0)


def test_uniform_is_uniform() -> None:
    numbers = np.array([uniform(seed, index) for seed in range(100) for index in range(200)])
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    counts = np.histogram(numbers, bins=20, range=(0.0, 1.0))[0]
    chi2 = ((counts - 1000.0) ** 2 / 1000.0).sum()
    assert chi2 < 45.3  # 99.94 % point of 19 degrees of freedom; the numbers are fixed
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
