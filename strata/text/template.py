"""Conversations to prompts: the model's chat template, its tokens, and where they repeat.

Text and ids equal transformers' `apply_chat_template` on the same file and values,
except that special-token text inside of a message stays text (`marks`).

Decided here, for templates that refuse a system message (in the middle, or at all) or
leave it out: the prompt is rendered again with such messages moved into the user's
(`messages.without_system`); if that is refused as well, the first complaint is returned.

Invariants: rendering depends on its arguments and nothing else; a template's failure,
whatever it is, is a RequestError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from strata.files import ModelFile
from strata.text.marks import Marked, Marks
from strata.text.messages import Habits, check_tools, normalise, without_system
from strata.text.sandbox import Sandbox
from strata.text.tokenizer import Tokenizer
from strata.types import ModelError, RequestError

_LARGEST = 1 << 20  # characters of a template's source
_RESERVED = ("messages", "tools", "add_generation_prompt")
_TAIL = "\N{END OF TEXT}"  # stands for the end of a message that is to be continued
