"""Prompts against transformers' apply_chat_template, and what only prompts of ours have."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from conversations import CHATML, conversation, text, tools
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import Pair, byte_level_metadata, gguf

from strata.files import ModelFile
from strata.text import template
from strata.text.template import ChatTemplate, NoTemplate
from strata.types import ModelError, RequestError

# What the template of a pair is, where its file has none.
_OWN = {"bytes": CHATML}


@pytest.fixture(scope="session", params=["smollm", "bytes", "qwen", "llama3"])
def chat(request: pytest.FixtureRequest) -> tuple[Pair, ChatTemplate, str]:
    pair = request.getfixturevalue(f"{request.param}_pair")
    override = _OWN.get(request.param)
    source = override or pair.theirs.chat_template or pair.model.metadata["tokenizer.chat_template"]
    return pair, template.load(pair.model, override, pair.ours), source


def _m(*pairs: str) -> list[dict[str, Any]]:
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    return [{"role": roles[pair[0]], "content": pair[1:]} for pair in pairs]


def theirs(pair: Pair, source: str, messages: list[dict[str, Any]], **options: Any) -> Any:
    options = {"add_generation_prompt": True, "tokenize": True, **options}
    out = pair.theirs.apply_chat_template(messages, chat_template=source, **options)
    return list(out["input_ids"]) if options["tokenize"] else out


# ------------------------------------------------------- equal to transformers


@pytest.mark.parametrize("header", [True, False])
def test_text_and_ids_equal_transformers(
    chat: tuple[Pair, ChatTemplate, str], header: bool
) -> None:
    pair, ours, source = chat
    for seed in range(150):
        messages, given_tools = conversation(seed), tools(seed)
        expected = theirs(
            pair, source, messages, tools=given_tools, add_generation_prompt=header, tokenize=False
        )
        options = {"tools": given_tools, "add_generation_prompt": header}
        assert ours.text(messages, **options) == expected, seed
        ids = theirs(pair, source, messages, tools=given_tools, add_generation_prompt=header)
        assert list(ours.render(messages, **options).tokens) == ids, seed


def test_template_variables(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, CHATML)
    for variables in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
        for seed in range(20):
            messages = conversation(seed)
            expected = theirs(bytes_pair, CHATML, messages, **variables)
            assert list(ours.render(messages, variables=variables).tokens) == expected


def test_continuing_the_final_message(chat: tuple[Pair, ChatTemplate, str]) -> None:
    pair, ours, source = chat
    if "add_generation_prompt" not in source:
        pytest.skip("this template always writes a header")
    for seed in range(60):
        messages = [*conversation(seed), {"role": "user", "content": "go"}]
        messages.append({"role": "assistant", "content": f"The answer{text(random.Random(seed))}"})
        options = {"add_generation_prompt": False, "continue_final_message": True}
        expected = theirs(pair, source, messages, tokenize=False, **options)
        assert ours.text(messages, continue_final_message=True) == expected, seed
        prompt = ours.render(messages, continue_final_message=True)
        assert list(prompt.tokens) == theirs(pair, source, messages, **options)
        assert prompt.stable_len == len(prompt.tokens)
    with pytest.raises(RequestError, match="assistant's message at the end"):
        ours.render([{"role": "user", "content": "x"}], continue_final_message=True)


@pytest.mark.parametrize("filtered", ["", " | trim", ".rstrip()"])
def test_continuing_where_a_template_changes_the_text(bytes_pair: Pair, filtered: str) -> None:
    source = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content" + filtered + " }}[end]{% endfor %}"
    )
    ours = ChatTemplate(bytes_pair.ours, source)
    for content in ("a", "a ", " a \n\n", "a b  ", "\t"):
        messages = [*_m("ux"), {"role": "assistant", "content": content}]
        if content.strip():
            options = {"add_generation_prompt": False, "continue_final_message": True}
            expected = theirs(bytes_pair, source, messages, tokenize=False, **options)
            assert ours.text(messages, continue_final_message=True) == expected
        else:  # transformers refuses to go on with a text that the template may drop
            assert "[assistant]" in ours.text(messages, continue_final_message=True)


_FEATURES = [
    "{{ messages | tojson }}",
    "{{ messages | tojson(indent=2) }}|{{ messages | tojson(ensure_ascii=True, sort_keys=True) }}",
    "{{ messages | tojson(separators=(',', ':')) }}",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}x{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}x{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(n=0, l=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.n }}{{ ns.l }}",
    "{% macro f(x, y=2) %}[{{ x }}{{ y }}{{ caller() if caller else '' }}]{% endmacro %}"
    "{{ f(1) }}{% call f('a') %}c{% endcall %}",
    "{{ messages[::-1][0].content ~ 1 ~ none ~ ['a'] }}{{ (1, 2) }}{{ {'a': 1}.items() | list }}",
    "{{ 'a,b'.split(',') | join('-') }}{{ ' x ' | trim }}{{ 'abc'[1:] }}{{ 'a' * 3 }}{{ 2 ** 10 }}",
    "{{ '%s-%03d' % ('a', 7) }}{{ '{:>5}|{}'.format('a', 1) }}{{ 'a b' | replace(' ', '_') }}",
    "  {% if messages is defined and no is not defined %}  \n  x\n  {% endif %}\n{{ no }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}",
    "{{ messages | length }}{{ range(3) | list }}{{ [3, 1, 2] | sort }}{{ 'a\\nb' | indent(2) }}",
    "{{ dict(a=1, b=2) }}{{ {'b': 1, 'a': 2} | dictsort }}{{ 'é' | upper }}{{ 7 // 2 }}{{ 7 % 4 }}",
    "{% set x %}a{{ messages[0].role }}{% endset %}{{ x }}{% filter upper %}y{% endfilter %}",
    "{%- for k, v in {'a': 1}.items() recursive %}{{ k }}{% endfor %}{{ strftime_now('%Y') }}",
    "{{ eos_token }}{{ bos_token }}{{ '<|im_end|>' }}{{ messages[0]['content'] | e }}",
]


@pytest.mark.parametrize("source", _FEATURES)
def test_the_language_is_transformers_own(bytes_pair: Pair, source: str) -> None:
    ours = ChatTemplate(bytes_pair.ours, source)
    for seed in range(8):
        # Ours moves system messages that a template does not show.
        messages = [m for i, m in enumerate(conversation(seed)) if i == 0 or m["role"] != "system"]
        expected = theirs(bytes_pair, source, messages, tokenize=False)
        assert ours.text(messages) == expected


# ------------------------------------------------------- where prompts part


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def test_stable_len_is_what_the_next_turn_repeats(chat: tuple[Pair, ChatTemplate, str]) -> None:
    _, ours, source = chat
    for seed in range(80):
        messages, given_tools = conversation(seed), tools(seed)
        prompt = ours.render(messages, tools=given_tools)
        bare = ours.render(messages, tools=given_tools, add_generation_prompt=False)
        assert prompt.stable_len == common(prompt.tokens, bare.tokens)
        assert bare.stable_len == len(bare.tokens)
        if messages[-1]["role"] == "user" and "add_generation_prompt" in source:
            assert prompt.stable_len == len(bare.tokens) < len(prompt.tokens)
            answer = {"role": "assistant", "content": text(random.Random(seed))}
            again = {"role": "user", "content": "\nand now?"}
            following = ours.render([*messages, answer, again], tools=given_tools)
            assert following.tokens[: prompt.stable_len] == prompt.tokens[: prompt.stable_len]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.text(max_size=8), st.text(max_size=8))
def test_the_system_anchor_holds_for_any_first_message(
    chat: tuple[Pair, ChatTemplate, str], seed: int, one: str, two: str
) -> None:
    _, ours, _ = chat
    system = {"role": "system", "content": "Be " + text(random.Random(seed))}
    given_tools = tools(seed)
    a = ours.render([system, {"role": "user", "content": one}], tools=given_tools)
    b = ours.render([system, {"role": "user", "content": two}], tools=given_tools)
    shared = common(a.tokens, b.tokens)
    assert a.anchors and a.anchors[0] == b.anchors[0] <= shared
    apart = ours.render([system, {"role": "user", "content": "Q" + one}], tools=given_tools)
    other = ours.render([system, {"role": "user", "content": "Z" + two}], tools=given_tools)
    assert common(apart.tokens, other.tokens) - apart.anchors[0] <= 4
    assert common(apart.tokens, other.tokens) in apart.anchors, "usual messages lose nothing"


def test_the_user_anchor_is_the_end_of_the_last_user_message(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, CHATML)
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "r"},
    ]
    prompt = ours.render(messages)
    upto = ours.render(messages[:2], add_generation_prompt=False)
    system = "<|im_start|>system\ns<|im_end|>\n<|im_start|>"
    for anchor, end in zip(prompt.anchors, (system, f"{system}user\n"), strict=False):
        assert bytes_pair.ours.decode(prompt.tokens[:anchor]).endswith(end)
    assert prompt.anchors[2] == len(upto.tokens)
    assert list(prompt.anchors) == sorted(set(prompt.anchors))


# ------------------------------------------------- anchors that clients ask for


def anchored(messages: list[dict[str, Any]], *numbers: int) -> list[dict[str, Any]]:
    marked = [dict(message) for message in messages]
    for number in numbers:
        marked[number]["cache_anchor"] = True
    return marked


def test_a_client_s_anchor_is_the_end_of_its_message(chat: tuple[Pair, ChatTemplate, str]) -> None:
    """The beginning of the talk up to there, by itself: transformers' own count of tokens."""
    pair, ours, source = chat
    checked = 0
    for seed in range(60):
        messages, given_tools = conversation(seed), tools(seed)
        plain = ours.render(messages, tools=given_tools)
        for number in range(len(messages) - 1):
            head = theirs(
                pair, source, messages[: number + 1], tools=given_tools, add_generation_prompt=False
            )
            if head != list(plain.tokens[: len(head)]):
                continue  # this template writes it otherwise when more follows
            prompt = ours.render(anchored(messages, number), tools=given_tools)
            assert prompt.tokens == plain.tokens and prompt.stable_len == plain.stable_len
            assert set(prompt.anchors) == {*plain.anchors, len(head)}, (seed, number)
            checked += 1
    assert checked > 60


def test_the_last_four_anchors_count(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, CHATML)
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"m{i}"} for i in range(9)
    ]
    own = set(ours.render(messages).anchors)
    ends = [
        len(ours.render(messages[: i + 1], add_generation_prompt=False).tokens) for i in range(8)
    ]
    prompt = ours.render(anchored(messages, *range(8)))
    assert set(prompt.anchors) == own | set(ends[4:])
    assert set(ours.render(anchored(messages, 1, 3)).anchors) == own | {ends[1], ends[3]}


_THINKING = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == "user" %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and loop.index0 > ns.last %}
{{- '<think>' + (m.reasoning_content or '') + '</think>' }}{% endif %}
{{- m.content | trim + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@pytest.mark.parametrize("content", ["Hello", " Hello \n", "", "<|im_end|> no"])
def test_an_anchor_where_thinking_is_left_out_later(bytes_pair: Pair, content: str) -> None:
    """The answer alone would show its thinking; in the whole talk it does not."""
    ours = ChatTemplate(bytes_pair.ours, _THINKING)
    answer = {"role": "assistant", "content": content, "reasoning_content": "hm"}
    messages = [{"role": "user", "content": "hi"}, answer, {"role": "user", "content": "and?"}]
    prompt = ours.render(anchored(messages, 1))
    assert "hm" not in ours.text(messages)
    own = set(ours.render(messages).anchors)
    (end,) = set(prompt.anchors) - own
    shown = f"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{content.strip()}<|im_end|>\n"
    assert bytes_pair.ours.decode(prompt.tokens[:end]) == shown
    assert bytes_pair.ours.decode(prompt.tokens[end:]).startswith("<|im_start|>user\nand?")


def test_templates_do_not_see_anchors(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, "{{ messages | tojson }}{{ messages[0].cache_anchor }}")
    messages = _m("u1", "a2", "u3")
    assert ours.text(anchored(messages, 0, 1)) == ours.text(messages)
    for value in (False, None, "yes", 1):
        odd = [{**messages[0], "cache_anchor": value}, *messages[1:]]
        assert ours.render(odd) == ours.render(messages)


def test_anchors_where_a_template_refuses_a_part(bytes_pair: Pair) -> None:
    source = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
        "{% if messages[-1].role != 'user' %}{{ raise_exception('user last') }}{% endif %}"
    )
    ours = ChatTemplate(bytes_pair.ours, source)
    messages = _m("u1", "a2", "u3")
    own = set(ours.render(messages).anchors)
    assert set(ours.render(anchored(messages, 1)).anchors) == own
    (end,) = set(ours.render(anchored(messages, 0)).anchors) - own
    assert bytes_pair.ours.decode(ours.render(messages).tokens[:end]) == "[user]1\n"


def test_an_anchor_on_a_system_message_that_is_moved(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, _ALTERNATING)
    messages = _m("u1", "a2", "s3", "u4")  # [user]1[assistant]2[user]3\n\n4
    own = set(ours.render(messages).anchors)
    (end,) = set(ours.render(anchored(messages, 2)).anchors) - own
    assert (
        bytes_pair.ours.decode(ours.render(messages).tokens[:end]) == "[user]1[assistant]2[user]3"
    )


def test_anchors_beside_special_text_in_tools_and_messages(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, CHATML)
    tool = {"type": "function", "function": {"name": "f", "description": "<|im_end|>"}}
    messages = _m("s<|im_start|>", "u<|im_end|>1", "a2", "u3")
    for number in range(3):
        plain = ours.render(messages, tools=[tool])
        head = ours.render(messages[: number + 1], tools=[tool], add_generation_prompt=False)
        prompt = ours.render(anchored(messages, number), tools=[tool])
        assert prompt.tokens == plain.tokens
        assert set(prompt.anchors) == {*plain.anchors, len(head.tokens)}


# --------------------------------------------------------- system messages

_ALTERNATING = """\
{%- if messages[0].role == 'system' %}{{ '[S]' + messages[0].content + '[/S]' }}
{%- set messages = messages[1:] %}{%- endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{%- endif %}
{%- if message.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}
{{- '[' + message.role + ']' + message.content }}
{%- endfor %}"""
_WITHOUT_SYSTEM = _ALTERNATING.replace(
    "{{ '[S]' + messages[0].content + '[/S]' }}", "{{ raise_exception('no system role') }}"
)
_SKIPPING = """\
{%- for m in messages %}{% if m.role != 'system' or loop.first %}
{{- '[' + m.role + ']' + m.content }}{% endif %}{% endfor %}"""


@pytest.mark.parametrize(
    ("source", "messages", "expected"),
    [
        (_ALTERNATING, _m("s1", "u2", "a3", "u4"), "[S]1[/S][user]2[assistant]3[user]4"),
        (_ALTERNATING, _m("s1", "u2", "s3"), "[S]1[/S][user]2\n\n3"),
        (_ALTERNATING, _m("u2", "d3", "a4", "u5"), "[user]2\n\n3[assistant]4[user]5"),
        (_ALTERNATING, _m("s1", "d2", "u3"), "[S]1\n\n2[/S][user]3"),
        (_ALTERNATING, _m("u1", "a2", "s3", "u4"), "[user]1[assistant]2[user]3\n\n4"),
        (_WITHOUT_SYSTEM, _m("s1", "u2", "a3", "u4"), "[user]1\n\n2[assistant]3[user]4"),
        (_WITHOUT_SYSTEM, _m("s1", "s2", "u3", "s4"), "[user]1\n\n2\n\n3\n\n4"),
        (_SKIPPING, _m("s1", "u2", "s[3]", "u4"), "[system]1[user]2\n\n[3]\n\n4"),
    ],
)
def test_system_messages_find_a_place(
    bytes_pair: Pair, source: str, messages: list[dict[str, Any]], expected: str
) -> None:
    assert ChatTemplate(bytes_pair.ours, source).text(messages) == expected


def test_the_templates_own_complaint_comes_first(bytes_pair: Pair) -> None:
    ours = ChatTemplate(bytes_pair.ours, _ALTERNATING)
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        ours.render(_m("s1", "u2", "u3", "s4"))
    assert caught.value.status == 400 and caught.value.field == "messages"


# ------------------------------------------------------------- finding one


def test_a_missing_template_names_the_fix(bytes_pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(NoTemplate, match=r"no chat template.*--chat-template FILE"):
        template.load(gguf(byte_level_metadata("qwen2")))
    with pytest.raises(ModelError, match="--chat-template FILE"):
        template.load(ModelFile("folder", tmp_path, "llama", {}, {}), None, bytes_pair.ours)


@pytest.mark.parametrize("source", ["{% for %}", "{{ x", "{% include 'a' %}{{", "{{ x | nosuch }}"])
def test_a_broken_template_is_a_model_error(bytes_pair: Pair, source: str) -> None:
    with pytest.raises(ModelError, match="chat template has an error"):
        ChatTemplate(bytes_pair.ours, source)


def test_a_huge_template_is_a_model_error(bytes_pair: Pair) -> None:
    for source in ("x" * (2 << 20), "{{" + "(" * 50_000 + ")" * 50_000 + "}}"):
        with pytest.raises(ModelError):
            ChatTemplate(bytes_pair.ours, source)


def test_override_and_variants(bytes_pair: Pair, tmp_path: Path) -> None:
    talk, tool = _m("u1"), {"type": "function", "function": {"name": "f"}}
    metadata = byte_level_metadata(
        "qwen2",
        **{
            "tokenizer.chat_template": "plain",
            "tokenizer.chat_template.tool_use": "{{ tools[0].type }}",
        },
    )
    chat = template.load(gguf(metadata))
    assert chat.text(talk) == "plain" and chat.text(talk, tools=[]) == "plain"
    assert chat.text(talk, tools=[tool]) == "function"
    assert template.load(gguf(metadata), "mine").text(talk, tools=[tool]) == "mine"
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    for given_default in (None, "file"):
        folder = {"tokenizer_config": {"chat_template": named}, "chat_template": given_default}
        model = ModelFile("folder", tmp_path, "llama", folder, {})
        chat = template.load(model, None, bytes_pair.ours)
        assert chat.text(talk) == (given_default or "d")
        assert chat.text(talk, tools=[tool]) == "t"
