"""Sampling rules against plain arithmetic written out here; independence of the batch."""

import math

import numpy as np
import pytest

from strata.engine.draw import NotFinite
from strata.engine.sampler import Choice, Chooser, Sampler
from strata.types import Sampling

VOCAB = 40


def chooser(sampling: Sampling, *, prompt=(), said=(), stops=(), seed: int = 7) -> Chooser:
    made = Chooser(sampling, seed, prompt, frozenset(stops))
    for token in said:
        made.saw(token)
    return made


def choose(row, sampling: Sampling, said=(), **fields) -> Choice:
    row = np.asarray(row, dtype=np.float32)
    return Sampler(len(row)).choose(row, chooser(sampling, said=said, **fields), len(said))


def greedy(**fields) -> Sampling:
    return Sampling(temperature=0.0, **fields)


def altered(row: np.ndarray, s: Sampling, prompt, said, stops) -> np.ndarray:
    """Steps 2 to 5 of the sampler's docstring, token by token."""
    out = row.astype(np.float64).copy()
    for token in set(prompt) | set(said):
        penalty = s.repetition_penalty
        out[token] = out[token] / penalty if out[token] > 0 else out[token] * penalty
    for token in set(said):
        out[token] -= s.frequency_penalty * list(said).count(token) + s.presence_penalty
    for token, bias in s.logit_bias:
        out[token] += bias
    if len(said) < s.min_tokens:
        for token in stops:
            out[token] = -math.inf
    return out


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.7},
        {"frequency_penalty": -0.4},
        {"logit_bias": ((3, 2.5), (5, -100.0), (3, 1.0))},
        {"min_tokens": 9},
        {"min_tokens": 3},
        {
            "repetition_penalty": 0.8,
            "presence_penalty": -0.3,
            "frequency_penalty": 0.2,
            "logit_bias": ((1, 1.0), (30, -2.0)),
            "min_tokens": 50,
        },
    ],
)
def test_altered_logits(fields) -> None:
    random = np.random.default_rng(11)
    sampling = greedy(**fields)
    for _ in range(50):
        row = random.standard_normal(VOCAB).astype(np.float32) * 3
        prompt = random.integers(0, VOCAB, 12).tolist()
        said = random.integers(0, VOCAB, random.integers(0, 9)).tolist()
        stops = random.integers(0, VOCAB, 2).tolist()
        expected = altered(row, sampling, prompt, said, stops)
        mine = row.copy()
        chooser(sampling, prompt=prompt, said=said, stops=stops).alter(mine, len(said))
        np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-6)
        before = row.copy()
        choice = choose(row, sampling, said, prompt=prompt, stops=stops)
        assert expected[choice.token] >= expected.max() - 1e-5
        assert (row == before).all(), "the model's logits are not ours to change"


def test_many_distinct_tokens_are_counted() -> None:
    said = [*range(200), 3, 3, 199]
    row = np.zeros(300, dtype=np.float32)
    chooser(greedy(frequency_penalty=1.0), said=said).alter(row, len(said))
    assert row[3] == -3.0 and row[199] == -2.0 and row[150] == -1.0 and row[250] == 0.0


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    row = np.zeros(VOCAB)
    row[[9, 4, 30]] = 2.0
    assert choose(row, greedy()).token == 4
    assert choose(row, greedy(logprobs=2, presence_penalty=0.1)).token == 4
    together = Sampler(VOCAB).choose_all(
        np.stack([row, row]).astype(np.float32), [(chooser(greedy()), 0)] * 2
    )
    assert together == [Choice(4), Choice(4)]


def test_stop_tokens_wait_for_min_tokens() -> None:
    row = np.zeros(VOCAB)
    row[[5, 6]] = [9.0, 8.0]
    sampling = greedy(min_tokens=2)
    assert choose(row, sampling, said=(1,), stops={5}).token == 6
    assert choose(row, sampling, said=(1, 1), stops={5}).token == 5
    assert choose(row, Sampling(min_tokens=2, seed=1), said=(), stops={5}).token != 5


def test_logprobs_are_of_the_raw_logits() -> None:
    random = np.random.default_rng(2)
    row = random.standard_normal(VOCAB).astype(np.float32) * 4
    exact = row.astype(np.float64) - np.logaddexp.reduce(row.astype(np.float64))
    order = sorted(range(VOCAB), key=lambda i: (-row[i], i))
    for sampling in (
        greedy(logprobs=5),
        greedy(logprobs=5, logit_bias=((order[3], 100.0),), presence_penalty=1.0),
        Sampling(temperature=0.3, top_p=0.5, logprobs=5, seed=1),
    ):
        choice = choose(row, sampling, said=(2,))
        assert choice.logprob is not None and choice.logprob.token == choice.token
        assert choice.logprob.logprob == pytest.approx(exact[choice.token], abs=2e-6)
        assert [token for token, _ in choice.logprob.top] == order[:5]
        for token, value in choice.logprob.top:
            assert value == pytest.approx(exact[token], abs=2e-6)
    assert choose(row, greedy(logprobs=0)).logprob.top == ()
    assert choose(row, greedy()).logprob is None


def some_rows(count: int, vocab: int) -> list[tuple[np.ndarray, Chooser, int]]:
    """Rows with every kind of sampling among them."""
    random = np.random.default_rng(8)
    kinds = [
        greedy(),
        greedy(logprobs=3),
        Sampling(temperature=0.9, top_p=0.9, logprobs=2),
        Sampling(temperature=1.4, top_k=30),
        Sampling(min_p=0.05, frequency_penalty=0.5),
        Sampling(),
        Sampling(temperature=0.5, repetition_penalty=1.2, top_k=5, top_p=0.7, logprobs=20),
    ]
    made = []
    for i in range(count):
        said = random.integers(0, vocab, 4).tolist()
        made.append(
            (
                (random.standard_normal(vocab) * (1 + i % 5)).astype(np.float32),
                chooser(kinds[i % len(kinds)], prompt=(1, 2), said=said, seed=i),
                len(said),
            )
        )
    return made


@pytest.mark.parametrize("vocab", [97, 5003, 49_152])
def test_a_row_does_not_depend_on_its_batch(vocab: int) -> None:
    rows = some_rows(14, vocab)
    sampler = Sampler(vocab)
    alone = [Sampler(vocab).choose(row.copy(), c, said) for row, c, said in rows]
    for order in (range(14), reversed(range(14)), [3, 3, 11, 0], [0], [0, 7]):
        picked = list(order)
        logits = np.stack([rows[i][0] for i in picked])
        got = sampler.choose_all(logits, [rows[i][1:] for i in picked])
        assert got == [alone[i] for i in picked]  # logprobs compared to the bit


def test_seeds() -> None:
    row = np.random.default_rng(4).standard_normal(VOCAB)

    def text(seed: int) -> list[int]:
        said: list[int] = []
        for _ in range(30):
            said.append(choose(row, Sampling(), said, seed=seed).token)
        return said

    assert text(1) == text(1)
    assert len({tuple(text(seed)) for seed in range(20)}) == 20


def test_samples_follow_the_distribution() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    counts = np.zeros(4)
    for seed in range(8000):
        counts[choose(row, Sampling(), seed=seed).token] += 1
    expected = np.array([0.5, 0.3, 0.15, 0.05]) * 8000
    assert ((counts - expected) ** 2 / expected).sum() < 17.7  # 99.95 % point, 3 degrees


@pytest.mark.parametrize("sampling", [greedy(), greedy(logprobs=1), Sampling(), Sampling(top_k=3)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_row_is_told_and_others_go_on(sampling: Sampling, value: float) -> None:
    good = np.zeros(VOCAB, dtype=np.float32)
    good[3] = 50.0
    bad = good.copy()
    bad[7] = value
    rows = [(chooser(sampling), 0), (chooser(sampling), 0), (chooser(sampling), 0)]
    made = Sampler(VOCAB).choose_all(np.stack([good, bad, good]), rows)
    assert isinstance(made[1], NotFinite)
    assert [c.token for c in (made[0], made[2]) if isinstance(c, Choice)] == [3, 3]


def test_scores_equal_the_log_softmax() -> None:
    row = np.random.default_rng(9).standard_normal(VOCAB).astype(np.float32)
    exact = row.astype(np.float64) - np.logaddexp.reduce(row.astype(np.float64))
    score = Sampler(VOCAB).score(row, 11, 1)
    assert score.token == 11 and score.logprob == pytest.approx(exact[11], abs=1e-6)
    assert score.top[0][0] == int(row.argmax())
