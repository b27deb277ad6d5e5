"""The Chat tab in a browser: it streams, stops, edits, and shows no more than what was said."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect


@pytest.fixture
def chat(stage, visit) -> Any:
    page = visit(f"{stage.url}/#chat")
    expect(page.locator("#connection-text")).to_have_text("Live")
    return page


def ask(page: Any, question: str) -> None:
    page.fill("#question", question)
    page.keyboard.press("Enter")


def settle(page: Any) -> None:
    """Wait for the end of the answer that streams."""
    expect(page.locator("#stop")).to_be_hidden()


def answers(page: Any) -> Any:
    return page.locator(".message.assistant")


def latest(url: str) -> dict[str, Any]:
    """The newest record of the server."""
    with urllib.request.urlopen(f"{url}/v1/requests", timeout=10) as answer:
        return json.load(answer)["data"][0]


def test_an_answer_streams_with_its_thinking_folded_and_its_own_figures(stage, chat):
    ask(chat, "What is the capital of France?")
    answer = answers(chat)
    settle(chat)
    expect(answer.locator(".body")).to_have_text("It is Paris.")
    expect(answer.locator(".body strong")).to_have_text("Paris")
    thinking = answer.locator(".thinking")
    expect(thinking.locator(".markdown")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".markdown")).to_have_text("I know this.")
    ask(chat, "And the capital of Spain?")
    usage = answers(chat).nth(1).locator(".usage")
    settle(chat)
    record = latest(stage.url)
    assert record["reused"] > 0
    expect(usage).to_contain_text(
        f"Prompt {record['prompt']:,} · reused {record['reused']:,} · output {record['output']:,}"
    )


def test_an_answer_can_be_stopped_and_asked_for_again(stage, chat):
    stage.gate.close()
    ask(chat, "something long")
    stage.gate.let(40)
    body = answers(chat).locator(".body")
    expect(body).to_contain_text("word2")
    expect(chat.locator("#send")).to_be_hidden()
    chat.click("#stop")
    expect(answers(chat).locator(".note")).to_have_text("Stopped.")
    stage.gate.open()
    assert "word59" not in body.text_content()
    chat.click("#tab-monitor")
    expect(chat.locator("#requests tbody:not(.live) .badge").first).to_have_text("Closed")
    chat.click("#tab-chat")
    answers(chat).get_by_role("button", name="Retry").click()
    expect(answers(chat).locator(".body")).to_contain_text("word59")
    expect(answers(chat)).to_have_count(1)


def test_an_earlier_message_can_be_edited(stage, chat):
    ask(chat, "first question")
    settle(chat)
    ask(chat, "second question")
    settle(chat)
    chat.get_by_role("button", name="Edit").first.click()
    field = chat.get_by_label("Edit your message")
    expect(field).to_have_value("first question")
    field.fill("another capital")
    chat.keyboard.press("Enter")
    expect(answers(chat).locator(".body")).to_have_text("It is Paris.")
    expect(answers(chat)).to_have_count(1)
    assert "another capital" in stage.world.prompts[-1]
    assert "question" not in stage.world.prompts[-1]


def test_what_a_model_says_is_text(chat):
    ask(chat, "something hostile")
    body = answers(chat).locator(".body")
    settle(chat)
    assert "owned" not in chat.title()
    assert body.locator("img, script, b").count() == 0
    expect(body).to_contain_text("<b>bold</b>")
    links = body.locator("a")
    expect(links).to_have_count(1)
    expect(links).to_have_attribute("href", "https://example.org/a")
    expect(body.locator("pre code")).to_have_text("<script>document.title='owned'</script>")
    expect(body.locator("td")).to_have_text(["1", "2"])
    expect(body.locator("ol > li > ul > li")).to_have_text("two")


def test_calls_of_tools_are_shown_and_answered(stage, chat):
    chat.click("#sampling-toggle")
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    chat.fill("#set-tools", json.dumps([tool]))
    chat.click("#sampling-close")
    ask(chat, "How is the weather?")
    call = answers(chat).locator(".call")
    expect(call).to_contain_text("weather")
    expect(call.locator("pre")).to_contain_text('"city": "Zürich"')
    chat.get_by_label("Result of weather").fill("21 degrees")
    chat.get_by_role("button", name="Send result").click()
    expect(answers(chat).nth(1).locator(".body")).to_have_text("It is 21 degrees.")
    assert "21 degrees" in stage.world.prompts[-1]


def test_settings_go_along(stage, chat):
    chat.click("#sampling-toggle")
    chat.get_by_label("Max tokens").fill("5")
    chat.get_by_label("System text").fill("Be brief.")
    chat.click("#sampling-close")
    ask(chat, "something long")
    expect(answers(chat).locator(".note")).to_contain_text("limit of tokens")
    expect(answers(chat).locator(".usage")).to_contain_text("output 5 ")
    assert "Be brief." in stage.world.prompts[-1]


def test_conversations_stay_in_the_browser(stage, chat):
    ask(chat, "first capital")
    settle(chat)
    chat.click("#new-talk")
    expect(answers(chat)).to_have_count(0)
    ask(chat, "all well?")
    expect(answers(chat).locator(".body")).to_have_text("All is well.")
    settle(chat)
    chat.reload()
    expect(chat.locator("#talks button")).to_have_text(["all well?", "first capital"])
    chat.locator("#talks button").nth(1).click()
    expect(answers(chat).locator(".body")).to_have_text("It is Paris.")
    with chat.expect_download() as saved:
        chat.click("#export-talk")
    text = saved.value.path().read_text()
    assert re.search(r"# first capital\n\n## User\n\nfirst capital\n\n## Assistant\n", text)
    assert (
        "<details><summary>Thinking</summary>\n\nI know this.\n" in text
        and "It is **Paris**." in text
    )
    chat.on("dialog", lambda dialog: dialog.accept())
    chat.click("#delete-talk")
    expect(chat.locator("#talks button")).to_have_text(["all well?"])


def test_errors_are_told_in_a_sentence(stage, visit):
    page = visit(f"{stage.url}/#chat", "400")
    expect(page.locator("#connection-text")).to_have_text("Live")
    ask(page, "word " * 5000)
    expect(answers(page).locator(".trouble")).to_contain_text("4096")
    expect(answers(page).get_by_role("button", name="Retry")).to_be_visible()
