"""The dashboard and the scrape file: every metric and label that they name is in GET /metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from strata.figures import Snapshot
from strata.server.metrics import Meters, render

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARD = json.loads((DEPLOY / "grafana.json").read_text())
METRIC = r"(?:vllm:|strata_)[a-z0-9_]+"


def samples() -> dict[str, set[str]]:
    """Labels of each sample's name on a page where everything has happened."""
    meters = Meters()
    meters.responses["/health", 200] = 1
    meters.finishes["stop"] = 1
    found: dict[str, set[str]] = {}
    page = render(meters, Snapshot(requests={"stop": 1}), "toy").decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_metric_and_label_of_the_dashboard_exists():
    known = samples()
    assert len(expressions()) > 40
    for expression in expressions():
        names = re.findall(METRIC, expression)
        assert names and set(names) <= set(known), expression
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert set(group.split(", ")) <= known[names[0]], expression
        for name, chosen in re.findall(rf"({METRIC})\{{([^}}]*)\}}", expression):
            assert set(re.findall(r"(\w+)=", chosen)) <= known[name], expression
        assert expression.count("(") == expression.count(")")
        counters = re.findall(rf"(rate\()?({METRIC})", expression)
        assert all(
            bool(rated) == name.endswith(("_total", "_bucket", "_sum", "_count"))
            for rated, name in counters
        ), expression


def test_panels_have_a_place_of_their_own():
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and all(0 <= x < 24 for x, _ in cells)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_scrape_file_reads_the_default_address():
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert job.get("metrics_path", "/metrics") == "/metrics"
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:8080"]
