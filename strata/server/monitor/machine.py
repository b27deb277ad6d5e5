"""What the computer does: processor, memory, disk and GPUs, read off when asked.

psutil tells of the machine, NVML of GPUs where its Python binding and a driver are there; without
them, and wherever a system does not tell, there is None or nothing. Call `sample` from one thread
at a time.
"""

from __future__ import annotations

import time
from typing import Any

import psutil


class Machine:
    """Rates are since the sample before, so the first one has none."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._gpus = Gpus()
        self._disk: tuple[float, int, int] | None = None
        psutil.cpu_percent(None)  # the first answer is 0 by convention

    def sample(self) -> dict[str, Any]:
        """Everything now: percent, bytes, bytes per second."""
        memory = psutil.virtual_memory()
        return {
            "cpu": psutil.cpu_percent(None),
            "ram": {"used": memory.total - memory.available, "total": memory.total},
            "process": self._process.memory_info().rss,
            "disk": self._disk_rates(),
            "gpus": self._gpus.sample(),
        }

    def _disk_rates(self) -> dict[str, float] | None:
        try:
            counts = psutil.disk_io_counters()
        except (OSError, RuntimeError):  # a container may hide them
            counts = None
        if counts is None:
            return None
        now = time.monotonic(), counts.read_bytes, counts.write_bytes
        before, self._disk = self._disk, now
        if before is None or now[0] <= before[0]:
            return None
        seconds = now[0] - before[0]
        read, written = now[1] - before[1], now[2] - before[2]
        return {"read": max(0, read) / seconds, "write": max(0, written) / seconds}


class Gpus:
    """NVIDIA's GPUs. None are shown where NVML is absent or fails."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
            self._nvml = pynvml
        except Exception:  # absent, or no driver: the binding raises errors of its own
            self._handles = []

    def sample(self) -> list[dict[str, Any]]:
        """Each GPU that answers: its use in percent, its memory in bytes."""
        return [told for handle in self._handles if (told := self._of(handle)) is not None]

    def _of(self, handle: Any) -> dict[str, Any] | None:
        nvml = self._nvml
        try:
            name, memory = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
            use = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        except nvml.NVMLError:
            return None
        return {
            "name": name.decode() if isinstance(name, bytes) else name,
            "use": use,
            "memory_used": memory.used,
            "memory_total": memory.total,
        }
