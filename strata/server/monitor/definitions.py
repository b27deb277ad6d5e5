"""What each figure of the Monitor means: one sentence each, shown where the figure is.

The keys are the names of the JSON of `GET /v1/monitor`; `docs/monitor.md` has the same table.
"""

from __future__ import annotations

# A finished request and a row share their figures, so these have no prefix.
DEFINITIONS: dict[str, str] = {
    "state": "Answering while a request decodes, reading while none does but one is there, else "
    "idle; loading until the model is there; failed when the engine has stopped.",
    "speed.read": "Prompt tokens computed per second, by all requests together, over the last "
    "second; steps that take longer are measured whole.",
    "speed.decode": "Tokens of answers per second, by all requests together, over the last second.",
    "speed.step_ms": "Mean time of the steps that ended within the last second.",
    "speed.steps": "Forward steps since the start.",
    "queue.running": "Requests that have a row of the batch.",
    "queue.queued": "Requests that wait for a row or for memory.",
    "queue.waiting": "Requests that wait for a prefix that another request is reading now; they "
    "reuse it instead of reading it themselves.",
    "queue.batch": "Rows of the batch: so many requests run at once at most.",
    "memory.pages": "Keys and values of tokens. Used: pages that hold something. Reusable: those "
    "of them that hold a prefix which other requests can use.",
    "memory.states": "States of models with recurrent layers. Used: slots that hold one. Reusable: "
    "checkpoints from which other requests can resume.",
    "memory.experts": "Slots for routed experts, on the GPU and in RAM, and how much of them holds "
    "an expert; all others are on the disk.",
    "memory.rows": "RAM for rows of n-gram tables that stay on the disk, and how much holds one.",
    "machine.cpu": "Processor time of the whole machine that was used since the last look.",
    "machine.ram": "Memory of the machine that other programs cannot have.",
    "machine.process": "Resident memory of this server, mapped model files included.",
    "machine.disk": "Bytes per second that all disks of the machine read and wrote since the last "
    "look.",
    "machine.gpus": "Of each NVIDIA GPU: the part of the time in which it computed, and memory.",
    "totals.requests": "Requests that ended since the start, by status.",
    "totals.prompt": "Tokens of the prompts that began to run since the start.",
    "totals.reused": "Those of them that needed no computing, because their prefix was cached.",
    "totals.read": "Prompt tokens computed since the start, those that a preempted request "
    "computed again included.",
    "totals.output": "Tokens of answers since the start.",
    "totals.saved_s": "Estimate of the time that reuse saved: the reused tokens at the mean rate "
    "at which others were read.",
    "time": "When the request arrived.",
    "status": "Of a row: queued, waiting for a prefix, loading experts (its step waits for the "
    "disk or the bus), reading its prompt, decoding. Of a finished request: stop, length, "
    "repetition, cancelled (the client left) or failed.",
    "reason": "Why the request ended, in words.",
    "number": "Finished requests are numbered from 1 in the order in which they ended.",
    "prompt": "Tokens of the prompt.",
    "reused": "Tokens of the prompt whose keys and values were cached when it began to run.",
    "read": "Tokens of the prompt that are there: reused ones and those computed so far.",
    "output": "Tokens of the answer, the one that ended it included.",
    "prefill_rate": "Prompt tokens that the request computed itself, per second from when it began "
    "to run to its first token, or to now.",
    "decode_rate": "Of a row: its tokens per second over the last second. Of a finished request: "
    "all tokens but the first, per second from the first to the last.",
    "hit_rate": "Of the lookups (one token's choice of one expert in one layer) the part that "
    "found its expert in the tier that is named, the fastest that there is.",
    "bus_share": "The part of the lookups whose expert was copied over the bus (PCIe) for it.",
    "experts": "Lookups by what served them: the device (GPU memory), the bus, the host (computed "
    "from RAM), the disk.",
    "first_token_s": "From the arrival to the first token, waiting included.",
    "queue_s": "From the arrival until it began to run: queued, and waiting for a prefix.",
    "wait_s": "The part of that in which it waited for a prefix that another request was reading.",
    "prefill_s": "From when it began to run to its first token.",
    "decode_s": "From its first token to its last.",
    "duration_s": "From the arrival to the end.",
    "age_s": "From the arrival to now.",
}
