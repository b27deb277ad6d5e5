"""Log lines as JSON: one object a line, with the request's figures and never its content."""

from __future__ import annotations

import json
import logging
from datetime import datetime

import pytest

from strata.cli.log import JsonFormatter


@pytest.fixture
def lines(caplog):
    """What was logged, as JSON lines."""
    caplog.set_level(logging.INFO)
    return lambda: [json.loads(JsonFormatter().format(record)) for record in caplog.records]


def test_a_message_and_a_failure(lines):
    log = logging.getLogger("strata.test")
    log.info("one %s\nmore", "é")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    first, second = lines()
    assert (first["message"], first["level"], first["logger"]) == (
        "one é\nmore",
        "info",
        "strata.test",
    )
    assert datetime.fromisoformat(first["time"]).utcoffset().total_seconds() == 0
    assert second["level"] == "error" and "ValueError: no" in second["exception"]
