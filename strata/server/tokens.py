"""POST /tokenize and /detokenize: text to token ids and back, in vLLM's and llama.cpp's names."""

from __future__ import annotations

import orjson

from strata.server.errors import Refusal
from strata.server.job import check_tokens
from strata.server.logprobs import TokenNames
from strata.server.prompt import render_chat
from strata.server.schema import DetokenizeBody, TokenizeBody
from strata.server.service import Service


def tokenize(service: Service, names: TokenNames, body: TokenizeBody) -> bytes:
    """Token ids of a raw text or of a rendered chat; raises a 400 unless exactly one is given."""
    text = body.prompt if body.prompt is not None else body.content
    if (text is None) == (body.messages is None):
        raise Refusal("give either prompt (a text) or messages (a chat)", field="prompt")
    tokens: list[int]
    if body.messages is not None:
        rendered = render_chat(
            service,
            body.messages,
            tools=body.tools,
            variables=body.chat_template_kwargs,
            generate=body.add_generation_prompt,
        )
        tokens = list(rendered.tokens)
    else:
        start = body.add_special_tokens is not False
        tokens = service.tokenizer.encode(text or "", special=True, start=start)
    answer: dict[str, object] = {
        "count": len(tokens),
        "max_model_len": service.model.context,
        "tokens": tokens,
    }
    if body.return_token_strs:
        answer["token_strs"] = [names.of(token)[0] for token in tokens]
    return orjson.dumps(answer)


def detokenize(service: Service, body: DetokenizeBody) -> bytes:
    """The text of token ids, control tokens in their written form."""
    check_tokens(body.tokens, service.tokenizer.vocab_size, "tokens")
    text = service.tokenizer.decode(body.tokens)
    return orjson.dumps({"prompt": text, "content": text})
