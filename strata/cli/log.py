"""Log lines to standard error, as text or as JSON. Knows no content: what is logged has none."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson


class JsonFormatter(logging.Formatter):
    """One object a line. A record's `request`, if it has one, is what the access line tells."""

    def format(self, record: logging.LogRecord) -> str:
        """Time in UTC, level, where from and message; then the request's own members."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told | getattr(record, "request", {}), default=str).decode()


def set_up_log(level: str, form: str = "text") -> None:
    """Log lines of `level` and above; `form` is text or json."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for chatty in ("uvicorn", "httpx", "httpcore", "filelock", "urllib3", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
