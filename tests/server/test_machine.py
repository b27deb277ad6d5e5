"""What the machine tells: psutil's figures, and NVML's from a module that stands in for it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from strata.server.monitor import machine
from strata.server.monitor.machine import Gpus, Machine


def test_memory_and_processor_are_those_of_this_machine():
    told = Machine().sample()
    assert told["ram"]["total"] == psutil.virtual_memory().total
    assert 0 < told["ram"]["used"] < told["ram"]["total"]
    assert abs(told["process"] - psutil.Process().memory_info().rss) < 64 << 20
    assert 0 <= told["cpu"] <= 100
    assert told["disk"] is None  # nothing to compare with yet


def test_disk_rates_are_since_the_sample_before(monkeypatch):
    counts, clock = SimpleNamespace(read_bytes=1000, write_bytes=50), [10.0]
    monkeypatch.setattr(machine.psutil, "disk_io_counters", lambda: counts)
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock[0])
    computer = Machine()
    assert computer.sample()["disk"] is None
    clock[0], counts.read_bytes, counts.write_bytes = 12.0, 5000, 150
    assert computer.sample()["disk"] == {"read": 2000.0, "write": 50.0}
    clock[0], counts.read_bytes = 13.0, 5500
    assert computer.sample()["disk"] == {"read": 500.0, "write": 0.0}


@pytest.mark.parametrize("hidden", [lambda: None, lambda: (_ for _ in ()).throw(OSError())])
def test_a_container_that_hides_its_disks(monkeypatch, hidden):
    monkeypatch.setattr(machine.psutil, "disk_io_counters", hidden)
    computer = Machine()
    assert [computer.sample()["disk"] for _ in range(2)] == [None, None]


class FakeNvml(ModuleType):
    """Two GPUs, of which the second may be lost."""

    class NVMLError(Exception):
        pass

    def __init__(self, lost: bool = False, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.lost, self.driver = lost, driver

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, i: int) -> int:
        return i

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return b"First" if handle == 0 else "Second"  # older bindings give bytes

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if self.lost and handle == 1:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(used=10 + handle, total=100)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=50 + handle)


FIRST = {"name": "First", "use": 50, "memory_used": 10, "memory_total": 100}
SECOND = {"name": "Second", "use": 51, "memory_used": 11, "memory_total": 100}


@pytest.mark.parametrize(
    ("nvml", "expected"),
    [
        (FakeNvml(), [FIRST, SECOND]),
        (FakeNvml(lost=True), [FIRST]),
        (FakeNvml(driver=False), []),
        (None, []),  # not installed
    ],
)
def test_gpus(monkeypatch, nvml, expected):
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert Gpus().sample() == expected
