"""The page in a browser, against a whole server: what it shows is what the clients were told."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from strata.server.guard import Access

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect


def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="EMPTY", max_retries=0, timeout=20)


class Clients:
    """Clients that run at the same time; each keeps the usage it was told."""

    def __init__(self, url: str) -> None:
        self.client = client(url)
        self.usages: list[Any] = []
        self._threads: list[threading.Thread] = []

    def ask(self, number: int, question: str) -> None:
        """Ask about the context of client `number`, in a thread."""
        context = f"Client {number}. " + " ".join(f"{number}{i}" for i in range(200))
        messages = [{"role": "system", "content": context}, {"role": "user", "content": question}]
        self._threads.append(threading.Thread(target=self._run, args=(messages,)))
        self._threads[-1].start()

    def _run(self, messages: list[Any]) -> None:
        options = {"include_usage": True}
        stream = self.client.chat.completions.create(
            model="scripted", messages=messages, max_tokens=8, stream=True, stream_options=options
        )
        self.usages += [chunk.usage for chunk in stream if chunk.usage]

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def finished(page: Any) -> list[dict[str, str]]:
    """Rows of the table that have ended: the text of each cell by its column."""
    return page.evaluate(
        """() => [...document.querySelectorAll("#requests tbody:not(.live)")].map((body) =>
          Object.fromEntries([...body.rows[0].querySelectorAll("td[data-column]")]
            .map((cell) => [cell.dataset.column, cell.textContent])))"""
    )


def until(true: Callable[[], object]) -> None:
    """Wait for it; for 10 seconds at most."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def shown(usages: list[Any]) -> list[tuple[str, str, str]]:
    """Usages as the table writes them."""
    return sorted(
        (
            f"{u.prompt_tokens:,}",
            f"{u.prompt_tokens_details.cached_tokens:,}",
            f"{u.completion_tokens:,}",
        )
        for u in usages
    )


def test_two_clients_read_at_once_and_their_figures_are_shown(serve, visit):
    """The report's pattern: both load a context at once, then both go on from theirs."""
    with serve() as stage:
        page, clients = visit(stage.url), Clients(stage.url)
        expect(page.locator("#headline")).to_have_text("Idle")
        stage.gate.close()
        clients.ask(1, ".")
        clients.ask(2, ".")
        until(lambda: len(stage.world.prompts) == 2)
        stage.gate.let(6)
        expect(page.locator("#headline")).to_have_text("Reading for 2 clients")
        bars = page.get_by_role("progressbar")
        expect(bars).to_have_count(2)
        for bar in bars.all():
            expect(bar).to_have_attribute("aria-valuenow", re.compile("[1-9]"))
            assert (
                0
                < int(bar.get_attribute("aria-valuenow"))
                < int(bar.get_attribute("aria-valuemax"))
            )
        expect(page.locator("#requests tbody.live .badge")).to_have_text(["Reading", "Reading"])
        stage.gate.open()
        clients.wait()
        expect(page.locator("#requests tbody:not(.live)")).to_have_count(2)
        clients.ask(1, "What comes next?")
        clients.ask(2, "And then?")
        clients.wait()
        expect(page.locator("#requests tbody:not(.live)")).to_have_count(4)
        expect(page.locator("#rows .row")).to_have_count(0)
        rows = finished(page)
        told = sorted((row["prompt"], row["reused"], row["output"]) for row in rows)
        assert told == shown(clients.usages)
        # The follow-ups are on top, and reused their contexts.
        assert all(int(row["reused"].replace(",", "")) > 300 for row in rows[:2])
        assert [row["reused"] for row in rows[2:]] == ["0", "0"]
        assert {row["status"] for row in rows} == {"Max tokens"}
        assert all(row["hits"] == "–" for row in rows), "there are no experts"
        total = page.locator("#totals .total", has_text="Reused").locator("dd").first
        reused = sum(u.prompt_tokens_details.cached_tokens for u in clients.usages)
        expect(total).to_have_text(f"{reused:,}")


def test_a_request_whose_client_left_is_closed(stage, visit):
    page = visit(stage.url)
    stage.gate.step_s = 0.05
    stream = client(stage.url).chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "long"}], stream=True
    )
    next(iter(stream))
    expect(page.locator("#headline")).to_have_text("Answering 1 client")
    stream.close()
    stage.gate.open()
    expect(page.locator("#requests tbody:not(.live) .badge").first).to_have_text("Closed")
    page.locator("#status-filter").select_option("cancelled")
    assert {row["status"] for row in finished(page)} == {"Closed"}
    page.get_by_role("button", name="Details").first.click()
    facts = page.locator("#requests .details:visible .facts")
    expect(facts).to_contain_text("First token")
    expect(facts).to_contain_text("Queue wait")
    assert get(f"{stage.url}/v1/requests")["data"][0]["id"] in facts.text_content()


def test_the_page_comes_back_when_the_server_does(serve, visit):
    with serve() as stage:
        port = int(stage.url.rsplit(":", 1)[1])
        page = visit(stage.url, "ERR_", "Failed to load resource")
        state = page.locator("#connection-text")
        expect(state).to_have_text("Live")
        Clients(stage.url)._run([{"role": "user", "content": "hello"}])
        expect(page.locator("#requests tbody:not(.live)")).to_have_count(1)
    expect(state).to_have_text("Reconnecting…")
    with serve(port=port) as stage:
        expect(state).to_have_text("Live")
        expect(page.locator("#requests tbody:not(.live)")).to_have_count(0)  # it began anew
        Clients(stage.url)._run([{"role": "user", "content": "hello"}])
        expect(page.locator("#requests tbody:not(.live)")).to_have_count(1)


def test_the_table_is_filtered_and_exported(stage, visit):
    page, clients = visit(stage.url), Clients(stage.url)
    for number in range(3, 6):
        clients.ask(number, ".")
    clients.wait()
    number = len(get(f"{stage.url}/v1/requests")["data"])
    expect(page.locator("#shown")).to_have_text(f"{min(20, number)} of {number} shown")
    data = get(f"{stage.url}/v1/requests")["data"]
    with page.expect_download() as told:
        page.click("#export-csv")
    rows = list(csv.DictReader(io.StringIO(told.value.path().read_text())))
    for key in ("id", "prompt", "reused", "output", "status"):
        assert [row[key] for row in rows] == [str(one[key]) for one in data]
    page.fill("#filter", data[0]["id"])
    expect(page.locator("#requests tbody")).to_have_count(1)
    with page.expect_download() as told:
        page.click("#export-json")
    (one,) = json.loads(told.value.path().read_text())
    assert one["id"] == data[0]["id"] and one["duration_s"] == data[0]["duration_s"]
    page.fill("#filter", "no such thing")
    expect(page.locator("#no-requests")).to_be_visible()
    page.fill("#filter", "")
    page.click("#show-all")
    expect(page.locator("#shown")).to_have_text(f"{number} of {number} shown")


def test_states_and_experts_are_told_as_the_server_has_them(stage, visit):
    """A snapshot with every state and with experts, of which this server has none."""
    sample = json.loads((Path(__file__).parents[1] / "data" / "monitor.json").read_text())
    event = f"event: snapshot\ndata: {json.dumps(sample)}\n\n"
    page = visit("about:blank")
    answer = {"content_type": "text/event-stream", "body": event}
    page.route("**/v1/monitor", lambda route: route.fulfill(**answer))
    page.goto(stage.url)
    expect(page.locator("#headline")).to_have_text("Reading for 1 client, answering 1, 2 waiting")
    expect(page.locator("th[data-column=hits] .term")).to_have_text("GPU hit rate")
    (row,) = [row for row in finished(page) if row["status"] == "Max tokens"]
    assert row["hits"] == "87.4 % +3.7 % PCIe"
    badges = page.locator("#rows .badge")
    expect(badges).to_have_text(["Decoding", "Reading", "Waiting for a prefix", "Queued"])
    page.locator("#requests tbody", has_text="Max tokens").get_by_role(
        "button", name="Details"
    ).click()
    (use,) = [one["experts"] for one in sample["finished"] if one["status"] == "length"]
    told = page.locator("#requests .details:visible")
    for lane, where in (("device", "on the GPU"), ("bus", "over PCIe"), ("disk", "from the disk")):
        expect(told).to_contain_text(f"{use[lane]:,} {where}")


def test_figures_tell_their_meaning(stage, visit):
    page = visit(stage.url)
    meaning = get(f"{stage.url}/v1/about")["definitions"]
    expect(page.locator("#model")).to_have_text("scripted")
    for term in page.locator("[data-figure]:visible").all():
        assert meaning.get(term.get_attribute("data-figure")), term.get_attribute("data-figure")
    term = page.locator("th[data-column=reused] .term")
    term.focus()
    tip = page.get_by_role("tooltip")
    expect(tip).to_have_text(meaning[term.get_attribute("data-figure")])
    assert term.get_attribute("aria-describedby") == tip.get_attribute("id")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.locator("th[data-column=output] .term").hover()
    expect(tip).to_be_visible()


def test_tabs_follow_the_keyboard_and_the_address(stage, visit):
    page = visit(f"{stage.url}/#cache")
    expect(page.get_by_role("tab", name="Cache")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Cache").focus()
    for key, name in (
        ("ArrowRight", "About"),
        ("ArrowRight", "Monitor"),
        ("End", "About"),
        ("Home", "Monitor"),
    ):
        page.keyboard.press(key)
        tab = page.get_by_role("tab", name=name)
        expect(tab).to_be_focused()
        expect(page.get_by_role("tabpanel")).to_have_attribute(
            "aria-labelledby", tab.get_attribute("id")
        )
    assert page.url.endswith("#monitor")


def test_the_cache_shows_its_tree_and_text_only_when_asked(stage, visit):
    clients = Clients(stage.url)
    clients.ask(7, ".")
    clients.wait()
    page = visit(f"{stage.url}/#cache")
    first = page.locator(".tree .node").first
    expect(first).to_contain_text("tokens")
    assert "71 72" not in page.locator("#panel-cache").text_content()
    for button in page.locator(".leaf button").all():
        button.click()
    expect(page.locator(".tree pre").filter(has_text="Client 7.")).to_have_count(1)
    page.click("#cache-clear")
    page.get_by_role("button", name="Keep it").click()
    expect(first).to_be_visible()
    page.click("#cache-clear")
    page.locator("#clear-dialog").get_by_role("button", name="Clear").click()
    expect(page.locator("#cache-status")).to_contain_text("Freed")
    expect(page.locator("#tree-empty")).to_be_visible()
    assert get(f"{stage.url}/v1/cache")["pages"]["cached"] == 0


def settings(*clients: str) -> list[str]:
    """What docs/clients.md says to write for these, without comments."""
    text = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
    parts = {part.split("\n", 1)[0]: part for part in text.split("\n## ")}
    blocks = ["".join(re.findall(r"(?:^    .*\n|^\n)+", parts[name], re.M)) for name in clients]
    return [re.sub(r" +#.*", "", block) for block in blocks]


def test_about_tells_addresses_and_commands(stage, visit):
    page = visit(f"{stage.url}/#about")
    about = page.locator("#about")
    told = get(f"{stage.url}/v1/about")
    expect(about).to_contain_text(told["urls"]["openai"])
    for client in ("Claude Code", "codex", "opencode", "OpenAI client"):
        page.locator("summary", has_text=client).click(force=True)
    text = about.text_content()
    for piece in (
        f"ANTHROPIC_BASE_URL={stage.url}",
        'wire_api = "responses"',
        "@ai-sdk/openai-compatible",
        f'base_url="{stage.url}/v1"',
    ):
        assert piece in text
    for block in settings("Claude Code", "codex", "opencode"):
        block = block.replace("http://127.0.0.1:8080", stage.url).replace("NAME", "scripted")
        assert "".join(block.split()) in "".join(text.split()), block
    for version in told["versions"].values():
        assert str(version) in text


def test_a_key_is_asked_for_once(serve, visit):
    with serve(access=Access(api_keys=("open sesame",))) as stage:
        page = visit(stage.url, "401")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_have_text("The server refused that key.")
        page.fill("#key", "open sesame")
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.locator("#headline")).to_have_text("Idle")
        page.reload()
        expect(page.locator("#headline")).to_have_text("Idle")
        expect(dialog).to_be_hidden()


def test_who_gives_no_key_is_not_asked_for_ever(serve, visit):
    with serve(access=Access(api_keys=("open sesame",))) as stage:
        page = visit(stage.url, "401")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("#connection-text")).to_have_text("Not connected")
        page.click("#connection")
        expect(page.get_by_role("dialog")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(stage, visit, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    # The style that axe measures with is refused by the page's policy.
    page = visit(stage.url, "Content Security Policy", color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("#headline")).to_have_text("Idle")
    options = {"preload": False}
    if scheme == "dark":  # only colours are others
        options["runOnly"] = ["color-contrast"]

    def check(what: str) -> None:
        found = axe.Axe().run(page, options=options).response["violations"]
        assert not found, f"{what}: " + json.dumps(
            [(one["id"], one["nodes"]) for one in found], indent=1
        )

    Clients(stage.url)._run([{"role": "user", "content": "hello"}])
    page.get_by_role("button", name="Details").first.click()
    check("Monitor")
    page.locator("th[data-column=time] .term").focus()
    check("Monitor with a tip")
    page.click("#tab-cache")
    expect(page.locator(".tree .node").first).to_be_visible()
    page.click("#cache-clear")
    check("Cache, asking")
    page.keyboard.press("Escape")
    page.click("#tab-about")
    check("About")
    page.click("#tab-chat")
    page.click("#sampling-toggle")
    page.fill("#question", "hostile")
    page.click("#send")
    expect(page.locator("#stop")).to_be_hidden()
    check("Chat")
    page.set_viewport_size({"width": 390, "height": 800})
    page.click("#sampling-close")
    check("Chat, narrow")
    page.click("#tab-monitor")
    check("Monitor, narrow")
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0, "the page scrolls sideways"
