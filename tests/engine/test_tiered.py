"""Whole models whose experts come from a store: the tokens of the model held whole, to the bit.

Everything is made as `strata serve` makes it: records, slots, policy, engine.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strata.cli import assemble
from strata.engine.outlet import QueueOutlet
from strata.experts import trace
from strata.figures import ExpertFigures, ExpertUse
from strata.settings import Config
from strata.synth import gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import ConfigError, DoneEvent, FailedEvent, Request, Sampling, TokenEvent, silent

SIZES = Shape(
    layers=3, interval=3, hidden=64, heads=4, kv_heads=2, head_dim=32, ffn=64, experts=16, top_k=2,
    expert_ffn=64, shared_ffn=32, vocab=512, context=640, key_heads=2, value_heads=4, state_dim=16,
    streams=4, stream_rank=8, index_heads=2, index_dim=16, index_budget=64, index_ratio=4,
    ngram_heads=4, ngram_vocab=64,
)  # fmt: skip
GREEDY = Sampling(temperature=0.0, logprobs=2)
RECORD = 16384  # bytes of an expert of SIZES, as 64 x 64 x 3 of Q8_0 come to
ANSWER = 6


def prompts(count: int) -> list[tuple[int, ...]]:
    """Four of them begin alike."""
    draw = random.Random(count)
    head = tuple(draw.choices(range(512), k=40))
    return [(*head, *draw.choices(range(512), k=20 + 7 * i)) for i in range(count)]


class Lab:
    """Plants on one model, whose records are packed once."""

    def __init__(self, folder: Path, family: str) -> None:
        self.path, self.records = folder / f"{family}.gguf", folder / "records"
        gguf_file.write(self.path, FAMILIES[family], SIZES, "Q8_0", 1, silent)
        self.facts: list[str] = []

    def plant(self, **settings: Any) -> assemble.Plant:
        common = {"cache_size": "16MiB", "threads": 2, "expert_records": str(self.records)}
        config = Config(model=str(self.path), **{**common, **settings})
        return assemble.build(config, self.records, silent, self.facts.append)

    def answers(self, batch: int, cached: bool, **settings: Any) -> tuple[Any, ExpertUse | None]:
        """Tokens and log-probabilities of each prompt, `batch` asked at once; all experts used."""
        plant = self.plant(batch=batch, **settings)
        try:
            waiting, said, used = prompts(4), list[Any](), ExpertUse()
            while waiting:
                now, waiting = waiting[:batch], waiting[batch:]
                outlets = [QueueOutlet() for _ in now]
                for i, (words, outlet) in enumerate(zip(now, outlets, strict=True)):
                    name = f"{len(said)}-{i}"
                    request = Request(name, words, ANSWER, GREEDY, cached=cached)
                    plant.engine.submit(request, outlet)
                for outlet in outlets:
                    tokens, end = hear(outlet)
                    assert isinstance(end, DoneEvent), end
                    said.append(tokens)
                    used += end.usage.experts or ExpertUse()
            layers = plant.engine.snapshot().experts
            assert whole(used) == whole(total(layers))
            return said, used if layers else None
        finally:
            plant.stop()


def total(layers: Iterable[ExpertFigures]) -> ExpertUse:
    return sum((one.use for one in layers), start=ExpertUse())


def whole(use: ExpertUse) -> ExpertUse:
    """With seconds as far as sums of them agree."""
    bus, disk = round(use.bus_stall_s, 9), round(use.disk_stall_s, 9)
    return replace(use, bus_stall_s=bus, disk_stall_s=disk)


def hear(outlet: QueueOutlet) -> tuple[list[Any], Any]:
    """Tokens and how likely they were, and the last event."""
    said = []
    while isinstance(event := outlet.events.get(timeout=60), TokenEvent):
        said.append((event.token, event.logprob))
    return said, event


@pytest.fixture(scope="module", params=["qwen3_moe", "qwen4_exp"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("tiered"), request.param)


@pytest.fixture(scope="module")
def plain(lab: Lab) -> Any:
    """The yardstick: everything in RAM, one at a time, nothing reused."""
    said, used = lab.answers(1, cached=False, expert_ram="auto")
    assert used is None
    return said


@pytest.mark.parametrize(
    ("slots", "settings"),
    [
        (8, {"expert_policy": "lru", "expert_prefetch": "off"}),
        (8, {"expert_policy": "tinylfu", "prefill_chunk": 33}),
        (20, {"expert_policy": "lfu", "expert_floor": 3}),
        (20, {"expert_policy": "least-stale", "expert_cache": f"{6 * RECORD}"}),
        (12, {"expert_policy": "value-density", "prefill_chunk": 50}),
        (48, {"expert_policy": "lfu", "expert_cache": f"{48 * RECORD}"}),
    ],
)
@pytest.mark.parametrize(("batch", "cached"), [(1, False), (4, True)])
def test_placement_changes_no_bit(
    lab: Lab, plain: Any, slots: int, settings: dict[str, Any], batch: int, cached: bool
) -> None:
    said, used = lab.answers(batch, cached, expert_ram=f"{slots * RECORD}", **settings)
    assert said == plain
    assert used is not None and used.lookups > 0
    assert used.lookups == used.device + used.bus + used.host + used.disk
    assert used.disk > 0 and used.disk_bytes >= RECORD


def test_requests_add_up_to_the_store_with_cancels(lab: Lab) -> None:
    """Eight clients, of whom every other one leaves in the middle of its answers."""
    plant = lab.plant(batch=4, expert_ram=f"{10 * RECORD}")

    async def client(number: int) -> None:
        draw = random.Random(number)
        for turn in range(3):
            words = tuple(draw.choices(range(512), k=draw.randint(5, 90)))
            stream = plant.service.engine.submit(Request(f"{number}-{turn}", words, 12, GREEDY))
            seen = 0
            async for _ in stream:
                seen += 1
                if number % 2 and seen > turn:
                    stream.close()
                    break

    async def everyone() -> None:
        await asyncio.gather(*(client(number) for number in range(8)))

    try:
        asyncio.run(everyone())
        while plant.engine.core.busy:
            time.sleep(0.01)
        records, layers = plant.engine.records, plant.engine.snapshot().experts
    finally:
        plant.stop()
    assert len(records) == 24 and any(record.status == "cancelled" for record in records)
    used = sum((record.experts or ExpertUse() for record in records), start=ExpertUse())
    assert whole(used) == whole(total(layers)) and used.disk > 0
    assert [one.layer for one in layers] == [0, 1, 2]


def test_a_damaged_record_ends_requests_and_not_the_engine(lab: Lab, tmp_path: Path) -> None:
    """Until it is mended: the same prompt has its answer then."""
    records = shutil.copytree(lab.records, tmp_path / "records")
    plant = lab.plant(expert_ram=f"{8 * RECORD}", expert_records=str(records))
    whole_file = (records / "experts.bin").read_bytes()

    def write(content: bytes) -> None:
        with open(records / "experts.bin", "r+b") as file:
            file.write(content)

    def ask(name: str) -> tuple[list[Any], Any]:
        outlet = QueueOutlet()
        plant.engine.submit(Request(name, prompts(1)[0], ANSWER, GREEDY), outlet)
        return hear(outlet)

    try:
        write(bytes(len(whole_file)))
        said, end = ask("early")
        assert said == [] and isinstance(end, FailedEvent)
        assert end.status == 503 and "checksum is wrong" in end.message
        write(whole_file)
        said, end = ask("late")
        assert len(said) == ANSWER and isinstance(end, DoneEvent)
        failed, done = reversed(plant.engine.records)
        assert whole((failed.experts or ExpertUse()) + (done.experts or ExpertUse())) == whole(
            total(plant.engine.snapshot().experts)
        )
    finally:
        plant.stop()


def test_a_profile_and_a_trace_are_left_behind(lab: Lab, tmp_path: Path) -> None:
    files = {"expert_profile": str(tmp_path / "p"), "expert_trace": str(tmp_path / "t")}
    for _ in range(2):  # the second run reads what the first one wrote
        _, used = lab.answers(4, cached=False, expert_ram=f"{10 * RECORD}", **files)
    recorded = trace.read(tmp_path / "t")
    assert used is not None and (recorded.head.places, recorded.head.experts) == (3, 16)
    assert sum(int(one.counts.sum()) for one in recorded.lookups) == used.lookups
    assert (tmp_path / "p").stat().st_size > 3 * 16 * 8


def test_too_few_slots_are_refused_with_what_to_do(lab: Lab) -> None:
    with pytest.raises(ConfigError, match=r"set --expert-ram to at least 1MiB \(all experts"):
        lab.plant(expert_ram=f"{RECORD}")
