"""From settings to a running engine: each layer is made here and handed to the next.

`Plant` is what comes out: the engine, started, and the service that the routes need. Nothing here
prints; progress goes to a sink and facts to `report`, one text each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strata.cli.machine import usable_cores
from strata.config import Config, Resolved
from strata.files import ModelFile, fetch, open_model
from strata.memory.budget import MemoryPlan, machine_memory, parse_size, plan_memory
from strata.server.service import Limits, ModelFacts, Service
from strata.text import template
from strata.text.template import ChatTemplate
from strata.text.tokenizer import Tokenizer
from strata.types import Backend, ConfigError, ProgressSink, Sampling

Report = Callable[[str], None]
_PART = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Plant:
    """A loaded model at work: `engine` is a started `strata.engine.loop.Engine`."""

    engine: Any
    service: Service


def check(resolved: Resolved) -> None:
    """Finds at once what would otherwise fail after a long load. Raises ConfigError."""
    config, sources = resolved.config, resolved.sources
    try:
        parse_size(config.cache_size, machine_memory())
    except ConfigError as error:
        raise ConfigError(f"{sources['cache_size']}: {error}") from None
    if config.chat_template:
        _read_template(config)


def build(config: Config, folder: Path, progress: ProgressSink, report: Report) -> Plant:
    """Fetch, open, load and start. `folder` keeps fetched models. Raises StrataError.

    torch is imported here and not before: `strata --help` must not wait for it.
    """
    path = fetch.locate(config.model, folder, progress)
    file = open_model(path)

    from strata import kernels
    from strata.engine.client import EngineClient
    from strata.models import loader
    from strata.text import tokenizer

    words = tokenizer.load(file)
    chat = _template(config, file, words, report)
    threads = config.threads or usable_cores()
    isa = None if config.isa == "auto" else config.isa
    chosen = kernels.choose(Backend(config.kernels), _device(config), threads, isa)
    model = loader.load(file, chosen, progress=progress)
    context = _context(config, model.context_length)
    report(f"model     {path.name}: {model.architecture}, context {context} tokens")
    report(f"kernels   {chosen.name}, {threads} threads")
    engine = _engine(config, model, context, report)
    engine.start()
    service = Service(
        engine=EngineClient(engine),
        tokenizer=words,
        template=chat,
        model=_facts(config, path, context),
        defaults=_sampling(config, loader.sampling_defaults(file), path, folder),
        limits=Limits(at_once=config.batch, timeout_s=config.request_timeout or None),
    )
    return Plant(engine, service)


def _device(config: Config) -> str:
    return "cpu" if config.device == "auto" else config.device


def _template(
    config: Config, file: ModelFile, words: Tokenizer, report: Report
) -> ChatTemplate | None:
    """The chat template, or None for a base model: texts work there, chats are refused."""
    try:
        return template.load(file, _read_template(config), words)
    except template.NoTemplate as error:
        report(f"template  {error}")
        return None


def _engine(config: Config, model: Any, context: int, report: Report) -> Any:
    """The engine on pages and states as planned, not yet started."""
    from strata.engine.loop import Engine
    from strata.engine.settings import EngineSettings

    plan = _plan(config, model, context)
    report(str(plan))
    settings = EngineSettings(
        batch=config.batch,
        prefill_chunk=config.prefill_chunk,
        mixed_chunk=config.mixed_chunk,
        decode_share=config.decode_share,
        max_queue=config.max_queue,
    )
    engine = Engine(
        model,
        settings,
        pages=plan.pages,
        states=plan.states,
        block=config.block_size,
        device=_device(config),
        context=context,
    )
    return engine


def _read_template(config: Config) -> str | None:
    if not config.chat_template:
        return None
    try:
        return Path(config.chat_template).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the chat template {config.chat_template}: {error}"
        ) from None


def _context(config: Config, longest: int) -> int:
    """Tokens of prompt and answer together."""
    if config.ctx_size > longest:
        raise ConfigError(
            f"--ctx-size {config.ctx_size} is more than the {longest} tokens the model was made for"
        )
    return config.ctx_size or longest


def _plan(config: Config, model: Any, context: int) -> MemoryPlan:
    from strata.memory.layout import page_layout, state_layout

    memory = model.memory(config.block_size)
    machine = machine_memory()
    return plan_memory(
        weights=model.weight_bytes,
        page_bytes=page_layout(memory).nbytes,
        state_bytes=state_layout(memory).nbytes,
        block=config.block_size,
        cache_bytes=parse_size(config.cache_size, machine),
        context=context,
        batch=config.batch,
        memory=machine,
    )


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


def _sampling(config: Config, file: dict[str, float], path: Path, folder: Path) -> Sampling:
    """Defaults for requests: the settings' over the model file's over the model card's."""
    known: dict[str, Any] = {**fetch.recommended(path, folder), **file, **config.sampling}
    return replace(Sampling(), **known)
