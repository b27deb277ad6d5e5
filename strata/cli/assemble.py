"""From settings to a running engine: each layer is made here and handed to the next.

`Plant` is what comes out: the engine, started, and the service that the routes need. Nothing here
prints; progress goes to a sink and facts to `report`, one text each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from strata.cli import experts
from strata.cli.machine import usable_cores
from strata.config import Resolved
from strata.files import ModelFile, fetch, open_model, quantisation
from strata.memory.budget import MemoryPlan, SlotShare, parse_size, plan_memory
from strata.memory.expert_budget import size_or_auto
from strata.memory.machine import machine_memory
from strata.memory.mapped import Mapped
from strata.server.service import Build, Limits, ModelFacts, Service
from strata.settings import Config
from strata.text import template, tokenizer
from strata.types import Backend, ConfigError, ProgressSink, Sampling

Report = Callable[[str], None]
# A step that reads a prompt wants nearly every expert once, however long it is.
CHUNK, TIERED_CHUNK = 512, 2048
_PART = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Plant:
    """A loaded model at work: `engine` is a started `strata.engine.loop.Engine`."""

    engine: Any
    service: Service
    store: experts.Store | None

    def stop(self) -> None:
        """Ends the engine, then what it read its experts from."""
        self.engine.stop()
        if self.store is not None:
            self.store.close()


def check(resolved: Resolved) -> None:
    """Finds at once what would otherwise fail after a long load. Raises ConfigError."""
    config, sources = resolved.config, resolved.sources
    sizes = {"cache_size": parse_size, "expert_ram": size_or_auto, "expert_cache": size_or_auto}
    sizes["ngram_cache"] = parse_size
    for name, parse in sizes.items():
        try:
            parse(getattr(config, name), machine_memory())
        except ConfigError as error:
            raise ConfigError(f"{sources[name]}: {error}") from None
    if config.chat_template:
        _read_template(config)


def build(config: Config, folder: Path, progress: ProgressSink, report: Report) -> Plant:
    """Fetch, open, load and start. `folder` keeps fetched models. Raises StrataError."""
    path = fetch.locate(config.model, folder, progress)
    file = open_model(path)
    mapped = Mapped(file)
    if config.expert_ram == config.expert_cache == "auto" and mapped.fits():
        mapped.read_ahead()

    def packed(what: str, done: int, total: int | None) -> None:
        mapped.let_go()
        progress(what, done, total)

    # torch is imported here and not before: `strata --help` must not wait for it.
    from strata import kernels
    from strata.engine.client import EngineClient
    from strata.models import loader

    words = tokenizer.load(file)
    chat = _template(config, file, words, report)
    threads = config.threads or usable_cores()
    device = "cpu" if config.device == "auto" else config.device
    isa = None if config.isa == "auto" else config.isa
    kv_type = None if config.kv_type == "auto" else config.kv_type
    chosen = kernels.choose(Backend(config.kernels), device, threads, isa, kv_type)
    model = loader.load(file, chosen, progress=packed)
    context = config.ctx_size or model.context_length
    if context > model.context_length:
        beyond = f"--ctx-size {context} is more than the {model.context_length} tokens"
        raise ConfigError(f"{beyond} the model was made for")
    report(f"model     {path.name}: {model.architecture}, context {context} tokens")
    kept = kernels.kv.name_of(chosen.kv_dtype)
    arithmetic = f"{chosen.name}, {threads} threads; keys and values in {kept}"
    report(f"kernels   {arithmetic}")
    machine = machine_memory()
    rows = parse_size(config.ngram_cache, machine)
    if rows:
        most = max(config.prefill_chunk or TIERED_CHUNK, config.mixed_chunk) + config.batch
        rows = model.cache_rows(rows, most)
    slots = experts.slots_for(config, model, chosen, parse_size(config.cache_size, machine) + rows)
    plan = _plan(config, model, context, rows, slots or ())
    report(str(plan))
    store = None
    if slots:
        store = experts.open_store(config, file, model, chosen, slots, progress, report)
    engine = _engine(config, model, context, device, plan, store)
    engine.start()
    card, own = fetch.recommended(path, folder), loader.sampling_defaults(file)
    sampling: dict[str, Any] = {**card, **own, **config.sampling}
    service = Service(
        engine=EngineClient(engine),
        tokenizer=words,
        template=chat,
        model=_facts(config, path, context),
        defaults=replace(Sampling(), **sampling),
        limits=Limits(at_once=config.batch, timeout_s=config.request_timeout or None),
        build=Build(
            path.name,
            model.architecture,
            quantisation(file),
            arithmetic,
            tuple(str(plan).splitlines()),
        ),
    )
    return Plant(engine, service, store)


def _template(
    config: Config, file: ModelFile, words: tokenizer.Tokenizer, report: Report
) -> template.ChatTemplate | None:
    """The chat template, or None for a base model: texts work there, chats are refused."""
    try:
        return template.load(file, _read_template(config), words)
    except template.NoTemplate as error:
        report(f"template  {error}")
        return None


def _plan(
    config: Config, model: Any, context: int, rows: int, slots: tuple[SlotShare, ...]
) -> MemoryPlan:
    """How the memory is shared out; experts that get `slots` do not come with the weights. `rows`
    are bytes of cached rows of tables. ConfigError when something does not fit.
    """
    from strata.memory.layout import page_layout, state_layout

    memory, machine = model.memory(config.block_size), machine_memory()
    return plan_memory(
        weights=model.weight_bytes - (model.expert_bytes if slots else 0),
        page_bytes=page_layout(memory).nbytes,
        state_bytes=state_layout(memory).nbytes,
        block=config.block_size,
        cache_bytes=parse_size(config.cache_size, machine),
        context=context,
        batch=config.batch,
        memory=machine,
        experts=slots,
        rows=rows,
    )


def _engine(
    config: Config,
    model: Any,
    context: int,
    device: str,
    plan: MemoryPlan,
    store: experts.Store | None,
) -> Any:
    """The engine on memory as planned, not yet started."""
    from strata.engine.loop import Engine
    from strata.engine.settings import EngineSettings

    chosen = {one.name: getattr(config, one.name) for one in fields(EngineSettings)}
    chosen["prefill_chunk"] = config.prefill_chunk or (store.chunk if store else CHUNK)
    return Engine(
        model,
        EngineSettings(**chosen),
        pages=plan.pages,
        states=plan.states,
        block=config.block_size,
        device=device,
        context=context,
        experts=store.experts if store else None,
    )


def _read_template(config: Config) -> str | None:
    if not config.chat_template:
        return None
    try:
        return Path(config.chat_template).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the chat template {config.chat_template}: {error}"
        ) from None


def _facts(config: Config, path: Path, context: int) -> ModelFacts:
    """How the API names the model: as asked for, else by its file or folder."""
    stem = _PART.sub("", path.stem) if path.suffix == ".gguf" else path.resolve().name
    if config.model in ("", fetch.DEFAULT.name):
        own = fetch.DEFAULT.name
    else:
        own = stem if Path(config.model).exists() else config.model
    name = config.served_model_name or own
    aliases = tuple(other for other in dict.fromkeys((own, stem)) if other != name)
    return ModelFacts(name, path.name, context, int(path.stat().st_mtime), aliases)
