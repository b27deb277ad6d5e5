"""Calls of tools in chat completions, read by the official client where it reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from strata.server.chat import ChatForm, chat_request
from strata.server.generate import Part, Tally
from strata.server.schema import ChatBody
from strata.server.talk import chat_job
from strata.text.delta import Delta, Kind
from strata.types import Finish

TALK = [{"role": "user", "content": "weather?"}]
QWEN = "shows <tool_call>\n<function=name>\n<parameter=key> and <think></think>"
HERMES = 'shows <tool_call>\n{"name": ..., "arguments": ...}</tool_call> and <think></think>'


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [
    tool("weather", city={"type": "string"}, days={"type": "integer"}),
    tool("clock"),
]
CALL = (
    '<tool_call>\n<function=weather>\n<parameter=city>\nRome "the\n eternal"\n</parameter>\n'
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
ARGUMENTS = {"city": 'Rome "the\n eternal"', "days": 3}
CLOCK = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"


@pytest.fixture(autouse=True)
def qwen(template):
    template.source = QWEN


@pytest.fixture
def client(live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="k", max_retries=0) as made:
        yield made


def ask(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(model="toy", messages=TALK, tools=TOOLS, **more)


def joined(chunks: list[Any]) -> dict[str, Any]:
    """What a stream adds up to, checked on the way: OpenAI's rules for deltas."""
    said: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "finish": None}
    for number, chunk in enumerate(c for c in chunks if c.choices):
        choice = chunk.choices[0]
        assert (choice.delta.role == "assistant") == (number == 0)
        assert said["finish"] is None, "nothing follows the finish"
        said["finish"] = choice.finish_reason
        said["content"] += choice.delta.content or ""
        said["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or ():
            if call.index == len(said["calls"]):
                assert call.id and call.type == "function" and call.function.name
                assert call.function.arguments == ""
                said["calls"].append([call.id, call.function.name, ""])
            else:
                assert call.index == len(said["calls"]) - 1
                assert not (call.id or call.type or call.function.name)
                said["calls"][-1][2] += call.function.arguments
    return said


def test_a_call_in_a_stream(client, engine, speak):
    engine.script = speak(f"Let me see.\n\n{CALL}")
    said = joined(list(ask(client, stream=True)))
    ((name, function, arguments),) = said["calls"]
    assert name.startswith("call_") and function == "weather"
    assert json.loads(arguments) == ARGUMENTS
    assert (said["content"], said["finish"]) == ("Let me see.", "tool_calls")


def test_arguments_stream_as_they_are_written(client, engine, speak):
    engine.script = speak(CALL)
    chunks = [c for c in ask(client, stream=True) if c.choices and c.choices[0].delta.tool_calls]
    pieces = [c.choices[0].delta.tool_calls[0].function.arguments for c in chunks]
    assert len(pieces) > len("Rome the eternal")


def test_a_call_in_a_whole_answer(client, engine, speak):
    engine.script = speak(CALL)
    choice = ask(client).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather")
    assert json.loads(call.function.arguments) == ARGUMENTS
    engine.script = speak(f"Here:\n\n{CALL}")
    assert ask(client).choices[0].message.content == "Here:"


def test_several_calls(client, engine, speak):
    engine.script = speak(f"{CALL}\n{CLOCK}\n{CALL}")
    said = joined(list(ask(client, stream=True)))
    assert [call[1] for call in said["calls"]] == ["weather", "clock", "weather"]
    assert [json.loads(call[2]) for call in said["calls"]] == [ARGUMENTS, {}, ARGUMENTS]
    assert len({call[0] for call in said["calls"]}) == 3
    whole = ask(client).choices[0].message.tool_calls
    assert [json.loads(call.function.arguments) for call in whole] == [ARGUMENTS, {}, ARGUMENTS]


@pytest.mark.parametrize("stream", [True, False])
def test_no_parallel_calls_ends_with_the_first(client, engine, speak, stream):
    engine.script = speak(f"{CALL}\n{CLOCK}")
    answer = ask(client, parallel_tool_calls=False, stream=stream)
    if stream:
        said = joined(list(answer))
        assert ([call[1] for call in said["calls"]], said["finish"]) == (["weather"], "tool_calls")
    else:
        choice = answer.choices[0]
        assert [call.function.name for call in choice.message.tool_calls] == ["weather"]
        assert choice.finish_reason == "tool_calls"
        assert answer.usage.completion_tokens < len(f"{CALL}\n")
    assert len(engine.cancelled) == 1


def test_what_comes_with_the_end_of_the_one_call_is_not_told(client, engine, speak):
    """Text that was held back for a stop string comes at once, with what follows the call."""
    engine.script = speak(f"{CLOCK}x{CLOCK}")
    answer = ask(client, parallel_tool_calls=False, stop="</function>\n</tool_call>y").choices[0]
    assert [call.function.name for call in answer.message.tool_calls] == ["clock"]
    assert (answer.message.content, answer.finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize("cut", range(20, 110, 9))
def test_a_call_cut_by_the_limit(client, engine, speak, cut):
    """The finish is the limit's; the arguments are a beginning of the whole ones, but for half
    a closing tag, which could as well be theirs.
    """
    engine.script = speak(CALL)
    whole = json.dumps(ARGUMENTS, ensure_ascii=False).replace(" ", "")
    said = joined(list(ask(client, stream=True, max_tokens=cut)))
    assert said["finish"] == "length"
    for _, name, arguments in said["calls"]:
        assert name == "weather"
        assert whole.startswith(re.split(r"(?:\n|\\n)(?:</.*)?$", arguments)[0].replace(" ", ""))
    answer = ask(client, max_tokens=cut).choices[0]
    assert answer.finish_reason == "length"
    functions = [call.function for call in answer.message.tool_calls or ()]
    told = [(function.name, function.arguments) for function in functions]
    assert told == [(name, arguments) for _, name, arguments in said["calls"]]


def test_a_whole_call_at_the_limit_ends_by_the_limit(client, engine, speak, service):
    engine.script = speak(CALL)
    limit = len(service.tokenizer.encode(CALL, start=False))
    answer = ask(client, max_tokens=limit).choices[0]
    assert answer.finish_reason == "length" and len(answer.message.tool_calls) == 1


def test_an_end_in_the_middle_of_a_call_is_no_call(client, engine, speak):
    engine.script = speak(CALL[:60])
    choice = ask(client).choices[0]
    assert choice.finish_reason == "stop"


def test_unknown_functions_and_none_are_content(client, engine, speak):
    engine.script = speak(CALL.replace("weather", "whether"))
    choice = ask(client).choices[0]
    assert (choice.message.tool_calls, choice.finish_reason) == (None, "stop")
    assert choice.message.content.startswith("<tool_call>")
    engine.script = speak(CALL)
    choice = ask(client, tool_choice="none").choices[0]
    assert (choice.message.content, choice.finish_reason) == (CALL, "stop")
    choice = client.chat.completions.create(model="toy", messages=TALK).choices[0]
    assert (choice.message.content, choice.message.tool_calls) == (CALL, None)


@pytest.mark.parametrize("text", ["Hi <tool_ca", "Hi <", "a\n\n<tool_call>\n<func", "a\n\n"])
@pytest.mark.parametrize("stream", [True, False])
def test_what_only_looked_like_a_call_is_told_at_the_end(client, engine, speak, text, stream):
    engine.script = speak(text)
    answer = ask(client, stream=stream)
    content = joined(list(answer))["content"] if stream else answer.choices[0].message.content
    assert content == text


def test_letters_of_a_marker_are_none_unless_a_grammar_may_write_them(client, engine, template):
    """A user's text that is copied is no call; what is forced may be spelled."""
    template.source = HERMES
    said = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    engine.script = lambda _: [*said.encode(), 257, Finish.STOP]
    choice = ask(client).choices[0]
    assert (choice.message.content, choice.message.tool_calls) == (said, None)
    named = {"type": "function", "function": {"name": "clock"}}
    for forced in ({"tool_choice": named}, {"response_format": {"type": "json_object"}}):
        (call,) = ask(client, **forced).choices[0].message.tool_calls
        assert call.function.name == "clock"


def test_none_hides_the_tools(call, template):
    for choice, shown in (("none", None), ("auto", TOOLS), (None, TOOLS)):
        assert call.chat(tools=TOOLS, tool_choice=choice).status == 200
        assert template.seen[-1]["tools"] == shown


def test_the_client_accumulates_a_stream(client, engine, speak):
    """The client's own reading of a stream is the whole answer."""
    engine.script = speak(f"So:\n\n{CALL}\n{CLOCK}")
    with client.chat.completions.stream(model="toy", messages=TALK, tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds and "content.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    assert final.message.content == "So:" and final.finish_reason == "tool_calls"
    assert json.loads(final.message.tool_calls[0].function.arguments) == ARGUMENTS
    assert [call.function.name for call in final.message.tool_calls] == ["weather", "clock"]


def test_a_client_that_leaves_in_a_call_cancels(client, engine, speak, eventually):
    engine.script = speak(CALL * 50, wait=0.002)
    with ask(client, stream=True) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.tool_calls:
                break
    eventually(lambda: len(engine.cancelled) == 1)


def test_another_dialect(client, engine, speak, template):
    template.source = HERMES
    said = json.dumps({"name": "weather", "arguments": ARGUMENTS})
    engine.script = speak(f"<tool_call>\n{said}\n</tool_call>")
    (call,) = joined(list(ask(client, stream=True)))["calls"]
    assert (call[1], json.loads(call[2])) == ("weather", ARGUMENTS)


def test_log_probabilities_cover_every_token(client, engine, speak):
    """Those of markup travel with what follows it; none is lost, none is told twice."""
    engine.script = speak(f"<think>\nhm\n</think>\n\nSo:\n\n{CALL}\n{CLOCK}")
    chunks = list(ask(client, stream=True, logprobs=True, top_logprobs=1))
    told = [e for c in chunks if c.choices and c.choices[0].logprobs
            for e in c.choices[0].logprobs.content]  # fmt: skip
    whole = ask(client, logprobs=True, top_logprobs=1).choices[0].logprobs.content
    assert [e.token for e in told] == [e.token for e in whole]
    said = f"<think>\nhm\n</think>\n\nSo:\n\n{CALL}\n{CLOCK}</s>"
    assert b"".join(bytes(e.bytes) for e in told).decode() == said


@pytest.mark.parametrize("form", [QWEN, HERMES])
def test_token_ids_cover_every_token(call, engine, speak, service, template, form):
    made = json.dumps({"name": "weather", "arguments": ARGUMENTS})
    calls = f"{CALL}\n{CLOCK}" if form == QWEN else f"<tool_call>\n{made}\n</tool_call>"
    text = f"<think>\nhm\n</think>\n\nSo:\n\n{calls}\n\nDone."
    template.source = form
    engine.script = speak(text)
    events = call.chat(stream=True, tools=TOOLS, return_token_ids=True).events()[:-1]
    told = [token for e in events for token in e["choices"][0]["token_ids"]]
    assert told == [*service.tokenizer.encode(text, start=False), 257]


def test_the_tokens_of_a_call_s_end_alone_are_told(service):
    """A call's end has no words in this API."""
    body = ChatBody(messages=TALK, tools=TOOLS, return_token_ids=True)
    job = chat_job(service, chat_request(body), "")
    form = ChatForm(job, service.names, False)
    parts = [Part("", [5], [], deltas=[Delta(Kind.CALL, "f", 0)]),
             Part("", [6, 7], [], deltas=[Delta(Kind.END, "", 0)])]  # fmt: skip
    told = b"".join(form.part(job.runs[0], part, Tally(1, 0.0)) for part in parts)
    assert [json.loads(e)["choices"][0]["token_ids"] for e in told.split(b"data: ")[1:]] == [
        [5], [6, 7]
    ]  # fmt: skip


# ---------------------------------------------------------------- what forces calls


WRITTEN = CALL.replace('Rome "the\n eternal"', "Rome")


@pytest.mark.parametrize(
    "choice, parallel, text, fits",
    [
        ("required", True, WRITTEN, True),
        ("required", True, CLOCK, True),
        ("required", True, f"{CLOCK}\n{WRITTEN}", True),
        ("required", False, f"{CLOCK}\n{WRITTEN}", False),
        ("required", True, "no", False),
        ("required", True, "", False),
        ("clock", True, CLOCK, True),
        ("clock", True, WRITTEN, False),
        ("weather", True, WRITTEN.replace("\n3\n", "\nthree\n"), False),
    ],
)
def test_forced_calls(call, engine, allowed, choice, parallel, text, fits):
    named = {"type": "function", "function": {"name": choice}}
    wanted = choice if choice == "required" else named
    answer = call.chat(tools=TOOLS, tool_choice=wanted, parallel_tool_calls=parallel)
    assert answer.status == 200
    assert allowed(engine.requests[0].guide(), text) == fits


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_free_answers_have_no_guide(call, engine, choice):
    assert call.chat(tools=TOOLS, tool_choice=choice).status == 200
    assert engine.requests[0].guide is None


@pytest.mark.parametrize(
    "fields, field, said",
    [
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "'f'"),
        ({"tool_choice": "required", "tools": []}, "tool_choice", "give tools"),
        ({"tool_choice": "required", "regex": "a"}, "tool_choice", "regex"),
        (
            {"tool_choice": "required", "response_format": {"type": "json_object"}},
            "tool_choice",
            "response_format",
        ),
        ({"regex": "a"}, "regex", "tool_choice"),
        ({"grammar": 'start: "a"'}, "grammar", "tool_choice"),
        ({"tools": [*TOOLS, tool("clock")]}, "tools.2", "clock"),
        ({"tools": [{"type": "web_search"}, *TOOLS, tool("clock")]}, "tools.3", "clock"),
        (
            {"tools": [TOOLS[1], {"function": {"name": "f", "parameters": []}}]},
            "tools.1.function.parameters",
            "object",
        ),
        (
            {"tools": [TOOLS[1], tool("f", a={"type": "strong"})], "tool_choice": "required"},
            "tools.1",
            "strong",
        ),
        (
            {"tools": [tool("f", a={"pattern": "(", "type": "string"}), *TOOLS],
             "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tools.0",
            "",
        ),
    ],
)  # fmt: skip
def test_refused(call, engine, fields, field, said):
    answer = call.chat(**{"tools": TOOLS, **fields})
    assert (answer.status, answer.error["param"]) == (400, field), answer.body
    assert said in answer.error["message"] and not engine.requests


def test_what_the_form_cannot_force_names_its_tool(call):
    odd = tool("f")
    odd["function"]["parameters"]["not"] = {"required": ["a"]}
    answer = call.chat(tools=[*TOOLS, odd], tool_choice="required")
    assert (answer.status, answer.error["param"]) == (400, "tools.2")
    assert "not" in answer.error["message"]
    assert call.chat(tools=[*TOOLS, odd]).status == 200
    one = {"type": "function", "function": {"name": "clock"}}
    assert call.chat(tools=[*TOOLS, odd], tool_choice=one).status == 200


def test_a_tool_that_is_no_function_is_left_out(call, template):
    assert call.chat(tools=[{"type": "web_search"}, *TOOLS]).status == 200
    assert template.seen[0]["tools"] == TOOLS


def test_the_history_reaches_the_template(call, template):
    """Calls, results and reasoning of earlier turns, as clients send them back."""
    made = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [
        *TALK,
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    assert call.chat(messages=messages, tools=TOOLS).status == 200
    seen = template.seen[0]["messages"]
    assert seen[1]["tool_calls"] == [made] and seen[1]["reasoning_content"] == "hm"
    assert (seen[2]["role"], seen[2]["content"]) == ("tool", "noon")
