"""What the model of the flows says to each question, and what a client must make of it."""

from __future__ import annotations

from typing import Any

from clients.world import Say

HELLO = 'Grüße, "world" 😀!\nIs 1 < 2?'
REASON = "The user wants a greeting."
DONE = "It is 21 degrees."
PERSON = {"name": "Mia", "age": 36}
ZURICH: dict[str, Any] = {"city": "Zürich", "days": 2, "note": 'two\nlines, "quoted" & <b>'}
LIMA: dict[str, Any] = {"city": "Lima", "days": 10, "note": ""}
COUNT = 3000  # words, which nobody waits for


def script(turn: str, prompt: str) -> Say:
    """By what the last turn says."""
    if '"name": "json"' in prompt:  # how some ask for structured output: by a tool of that name
        return Say("", "An object, then.", (("json", PERSON),))
    if "<tool_response>" in turn:
        return Say(DONE if "21 degrees" in turn else "Nothing came back.", "So that is it.")
    if "two cities" in turn:
        return Say("", "Two calls.", (("get_weather", ZURICH), ("get_weather", LIMA)))
    if "weather" in turn:
        return Say("", "I must look.", (("get_weather", ZURICH),))
    if "JSON" in turn:
        return Say('{"name": "Mia", "age": 36}', "An object, then.")
    if "Count" in turn:
        return Say(" ".join(map(str, range(COUNT))), "Long.")
    return Say(HELLO, REASON)


# By the end of a flow's name: what it must have seen, of what it tells.
EXPECTED: dict[str, dict[str, Any]] = {
    "chat": {"text": HELLO, "reasoning": REASON, "finish": ("stop", "end_turn")},
    "stream": {"text": HELLO, "reasoning": REASON, "finish": ("stop", "end_turn")},
    "tools": {"call": ["get_weather", ZURICH], "text": DONE},
    "tools_stream": {"calls": [["get_weather", ZURICH], ["get_weather", LIMA]]},
    "forced": {"call": ["get_weather", ZURICH]},
    "structured": {"object": PERSON},
    "responses": {"text": HELLO},
    "reasoning": {"reasoning": REASON},
    "count_tokens": {"counted": True},
    "refusal": {"refused": "not_found_error"},
    "early_close": {},
}


def faults(saw: dict[str, Any]) -> list[str]:
    """What is wrong with what a flow tells; an error of its own is one."""
    flow = saw["flow"]
    if "error" in saw:
        return [f"{flow}: {saw['error'][-600:]}"]
    ends = [end for end in EXPECTED if flow == end or flow.endswith(f"_{end}")]
    expected = EXPECTED[max(ends, key=len)]
    wrong = []
    for key, value in saw.items():
        want = expected.get(key)
        if key in expected and not (value in want if isinstance(want, tuple) else value == want):
            wrong.append(f"{flow}: {key} is {value!r}, not {want!r}")
    if expected and not set(saw) & set(expected):
        wrong.append(f"{flow}: nothing was seen")
    # The first prompt ends with the header of an answer, which a template may write otherwise
    # once the answer is there.
    if "read" in saw and not saw["cached"] >= saw["read"] - HEADER:
        wrong.append(f"{flow}: {saw['cached']} tokens of {saw['read']} were reused")
    return wrong


HEADER = 8  # tokens of `<|im_start|>assistant`, a line's end, `<think>` and another line's end
