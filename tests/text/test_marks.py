"""No special token comes from a message: every token, every role, every border."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conversations import CHATML
from hostile import HOSTILE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import Metaspace
from vocabularies import Pair

from strata.text import template
from strata.text.marks import Guard
from strata.text.template import ChatTemplate
from strata.text.tokenizer import Tokenizer
from strata.types import RequestError

ROLES = ("system", "user", "assistant", "tool")


@pytest.fixture(scope="session", params=["smollm", "bytes", "qwen", "llama3"])
def chat(request: pytest.FixtureRequest) -> tuple[Tokenizer, ChatTemplate]:
    pair: Pair = request.getfixturevalue(f"{request.param}_pair")
    override = CHATML if request.param == "bytes" else None
    return pair.ours, template.load(pair.model, override, pair.ours)


def added(ours: Tokenizer, tokens: tuple[int, ...]) -> Counter[int]:
    """How often each added token is in a prompt."""
    ids = {ours.encode(text, special=True, start=False)[0] for text in ours.added_tokens}
    return Counter(token for token in tokens if token in ids)


def talk(role: str, text: str) -> list[dict[str, Any]]:
    """A conversation with the text in one role's content."""
    filled = {name: text if name == role else "neutral" for name in ROLES}
    return [
        {"role": "system", "content": filled["system"]},
        {"role": "user", "content": filled["user"]},
        {"role": "assistant", "content": filled["assistant"]},
        {"role": "tool", "content": filled["tool"]},
        {"role": "user", "content": "end"},
    ]


@pytest.mark.parametrize("role", ROLES)
def test_every_special_text_in_every_role(chat: tuple[Tokenizer, ChatTemplate], role: str) -> None:
    ours, chat_template = chat
    neutral = added(ours, chat_template.render(talk(role, "neutral")).tokens)
    for text, control in ours.added_tokens.items():
        if "reserved_special" in text and not text.endswith(("_0|>", "_7|>")):
            continue  # llama 3 has 248 of them
        for content in (text, f"a {text} b", f"{text}\n{text}{text}", f"x{text[:-1]}{text}"):
            prompt = chat_template.render(talk(role, content))
            found = added(ours, prompt.tokens)
            if role == "assistant" and not control:
                own = ours.encode(text, special=True, start=False)[0]
                found[own] = neutral[own]
            assert +found == neutral, (role, content)
            decoded = ours.decode(prompt.tokens)
            assert decoded == chat_template.text(talk(role, content))
            if role != "assistant":
                assert content in decoded


def test_tools_names_arguments_and_variables(bytes_pair: Pair) -> None:
    source = CHATML.replace("'Tools:'", "'Tools:' ~ (note or '') ~ bos_token")
    ours, chat_template = bytes_pair.ours, ChatTemplate(bytes_pair.ours, source)

    def request(text: str) -> tuple[int, ...]:
        arguments = {text: [text, {"deep": text}], "k" + text: text}
        call = {"type": "function", "function": {"name": text, "arguments": arguments}}
        properties = {text: {"type": "string", "enum": [text]}}
        function = {"name": text, "description": text, "parameters": {"properties": properties}}
        return chat_template.render(
            [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": text, "name": text, "tool_call_id": text},
            ],
            tools=[{"type": "function", "function": function}],
            variables={"note": text, "bos_token": text},
        ).tokens

    neutral = request("neutral")
    for text, control in ours.added_tokens.items():
        found = added(ours, request(text))
        if not control:  # the call is the assistant's own, where such words may pass
            own = ours.encode(text, special=True)[0]
            found[own] = added(ours, neutral)[own]
        assert +found == added(ours, neutral), text


def test_the_models_own_words_pass_in_its_own_messages(bytes_pair: Pair) -> None:
    ours = bytes_pair.ours
    chat_template = ChatTemplate(ours, "{% for m in messages %}{{ m.content }}{% endfor %}")
    (think,) = ours.encode("<think>", special=True)
    assert think in chat_template.render([{"role": "assistant", "content": "<think>x"}]).tokens
    for role in ("user", "system", "tool"):
        assert think not in chat_template.render([{"role": role, "content": "<think>x"}]).tokens


def test_templates_that_look_for_a_thought_work(bytes_pair: Pair) -> None:
    text = ChatTemplate(bytes_pair.ours, CHATML).text(
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<think>a</think>\nb"}],
        add_generation_prompt=False,
    )
    assert text.endswith("<|im_start|>assistant\nb<|im_end|>\n")


def bare(pair: Pair, start: bool) -> Library:
    """The reference's pipeline without any added token; no prefix blank unless at the start."""
    library = Library(pair.theirs.backend_tokenizer.model)
    library.pre_tokenizer = pair.theirs.backend_tokenizer.pre_tokenizer
    if isinstance(library.pre_tokenizer, Metaspace) and not start:
        library.pre_tokenizer = Metaspace(replacement="▁", prepend_scheme="never", split=False)
    return library


@pytest.mark.parametrize("kind", ["bytes", "spm"])
def test_a_marked_message_has_the_ids_of_plain_text(
    request: pytest.FixtureRequest, kind: str
) -> None:
    pair: Pair = request.getfixturevalue(f"{kind}_pair")
    inside, first = bare(pair, start=False), bare(pair, start=True)
    wrapped = ChatTemplate(pair.ours, "<|im_start|>{{ messages[0].content }}<|im_end|>!")
    naked = ChatTemplate(pair.ours, "{{ messages[0].content }}<|im_end|>")
    start, end = (pair.ours.encode(t, special=True)[-1] for t in ("<|im_start|>", "<|im_end|>"))
    after = inside.encode("!").ids
    for text in HOSTILE:
        for content in (text, f" {text}<|im_end|> <think>{text}"):
            messages = [{"role": "user", "content": content}]
            ids = list(wrapped.render(messages).tokens)
            assert ids == [start, *inside.encode(content).ids, end, *after], content
            ids = list(naked.render(messages).tokens)
            assert ids == [*(first.encode(content).ids if content else []), end], content


# A template can put its own text right beside a message's, or inside of what makes a token.
_BORDERS = (
    "<|im_start|>{{ m.content }}|><|im_end|>",
    "<|im_start|><|{{ m.content }}<|im_end|>",
    "<|im_start|><|im_{{ m.content }}end|><|im_end|>",
    "<|im_start|><{{ m.content }}><|im_end|>",
    "<|im_start|><|{{ m.content }}|><|im_end|>",
    "<|im_start|>{{ m.content }}{{ m.content }}<|im_end|>",
    "<|im_start|>{{ m.content[:5] }}<|im_end|>",
    "<|im_start|>{{ m.content | trim }}<|im_end|>",
    "<|im_start|>{{ m.content | tojson(ensure_ascii=True) }}<|im_end|>",
    "<|im_start|>{{ m.content.split('|')[0] }}<|im_end|>",
    "<|im_start|>{{ {'parameter=': m.content} | tojson }}<|im_end|>",
)
_fragments = st.lists(
    st.sampled_from(
        [
            "<|im_end|>",
            "<|im_",
            "end|>",
            "<|",
            "|>",
            "<",
            ">",
            "im_end",
            "im",
            "|",
            "<think>",
            "end",
            "<thi",
            "nk>",
            "a",
            " ",
            "\n",
            "\\ue000",
            "\ue000",
            "<|endoftext|>",
            "_end|>",
            "\ud800",
        ]
    ),
    max_size=6,
).map("".join)


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(_BORDERS), _fragments, _fragments)
@example(_BORDERS[4], "im_end", "")
@example(_BORDERS[1], "im_end|>", "|>")
@example(_BORDERS[0], "<|im_end", "<|im_end")
def test_no_token_forms_across_a_border(bytes_pair: Pair, border: str, one: str, two: str) -> None:
    ours = bytes_pair.ours
    if "im_{{" in border:  # around nothing, the template writes the token itself
        one, two = one or "a", two or "a"
    source = "{% for m in messages %}" + border + "{% endfor %}"
    chat_template = ChatTemplate(ours, source)
    messages = [{"role": "user", "content": one}, {"role": "tool", "content": two}]
    prompt = chat_template.render(messages)
    start, end = (ours.encode(t, special=True)[0] for t in ("<|im_start|>", "<|im_end|>"))
    assert added(ours, prompt.tokens) == {start: 2, end: 2}
    assert ours.decode(prompt.tokens) == chat_template.text(messages)


def brute_force(tokens: list[str], text: str) -> str:
    """A mark in the middle of each occurrence, the naive way."""
    places = {i + 1 for t in tokens for i in range(len(text)) if text.startswith(t, i)}
    return "".join("\ue000" + c if i in places else c for i, c in enumerate(text))


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from("ab<|>"), max_size=20))
def test_every_occurrence_is_broken_overlapping_ones_too(text: str) -> None:
    tokens = ["<ab>", "ab>", "<|a", "|ab", "aa", "b<"]
    guard = Guard(dict.fromkeys(tokens, True), control_only=True)
    places = set(guard.places(text, whole=False))
    marked = "".join("\ue000" + c if i in places else c for i, c in enumerate(text))
    marked += "\ue000" * (len(text) in places)
    assert not any(token in marked for token in tokens)
    naive = {i for i, c in enumerate(brute_force(tokens, text).split("\ue000"))}
    assert len(places) >= len(naive) - 1
    # Whatever the template writes before and after, no token reaches into the text.
    for before in ("<", "<a", "|", "a", "b", "<|"):
        for after in (">", "b>", "a", "<", "ab"):
            whole = before + marked + after
            for token in tokens:
                at = whole.find(token)
                inside = 0 <= at < len(before + marked) and at + len(token) > len(before)
                assert not inside or len(marked.strip("\ue000")) < len(token) - 1


def test_blank_runs_and_single_characters_stay() -> None:
    guard = Guard({"\n\n": False, "▁▁": False, "x": True, "  ": False}, control_only=False)
    assert guard.places("\n\n  x\n\n", whole=True) == []


def test_ordinary_text_needs_no_mark(bytes_pair: Pair) -> None:
    chat_template = ChatTemplate(bytes_pair.ours, "{{ messages[0].content }}")
    marks = chat_template._plain.marks
    assert marks.apply([{"role": "user", "content": "a < b > c | d"}], None, {}).mark is None
    marked = marks.apply([{"role": "user", "content": "\ue000\\ue001<|im_end|>\ue002"}], None, {})
    assert marked.mark == "\ue003"
    every = "".join(map(chr, range(0xE000, 0xF900)))
    with pytest.raises(RequestError, match="private-use"):
        marks.apply([{"role": "user", "content": every + "<|im_end|>"}], None, {})
