"""A hostile template ends, soon and small, with an error that is ours."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from vocabularies import Pair

from strata.text import limits
from strata.text.template import ChatTemplate
from strata.types import ModelError, RequestError

_MANY = "{% set r = range(99999) %}"
_DOUBLE = "{% set ns = namespace(s='ab', l=[1], m=[1], t=(1, 2), d={}) %}{% for i in range(99) %}"
HOSTILE = [
    _MANY + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
    _MANY
    + "{% for a in r %}{% for b in r %}{% for c in r %}{{ a }}{% endfor %}{% endfor %}{% endfor %}",
    _MANY
    + "{% for a in r if false %}{% endfor %}" * 3
    + "{% for a in r %}{% for b in r if b < 0 %}"
    "{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ 10 ** 10 * 'a' }}",
    "{{ [0] * 10 ** 9 }}",
    "{{ (0,) * 10 ** 9 }}",
    "{{ 9 ** 9999 }}",
    "{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    _DOUBLE + "{% set ns.s = ns.s + ns.s %}{% endfor %}",
    _DOUBLE + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    _DOUBLE + "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
    _DOUBLE + "{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
    _DOUBLE + "{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
    _DOUBLE + "{% set ns.s = ns.s | replace('a', ns.s) %}{% endfor %}",
    _DOUBLE + "{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}",
    _DOUBLE + "{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}",
    _DOUBLE + "{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l }}",
    _DOUBLE
    + "{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
    _DOUBLE + "{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} }}",
    _DOUBLE + "{% set ns.d = {'a': ns.d, 'b': ns.d} %}{% endfor %}{{ ns.d | tojson }}",
    _DOUBLE + "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
    _DOUBLE + "{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}",
    "{% set s = 'ab' * 400000 %}" + _DOUBLE + "{% set ns.l = ns.l + [s[i:]] %}{% endfor %}",
    "{% set s = 'ab' * 400000 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
    "{% set s = 'ab' * 400000 %}{% macro f() %}{% for i in range(9999) %}{{ s }}{% endfor %}"
    "{% endmacro %}{{ f() }}",
    "{% set s = 'ab' * 400000 %}{{ s.replace('a', s) }}",
    "{% set s = 'ab' * 400000 %}{{ s.join(s | list) }}",
    "{% set s = 'ab' * 400000 %}{{ s | list | join(s) }}",
    "{% set s = '\\n' * 400000 %}{{ s | indent(400000, true) }}",
    "{% set s = '\\t' * 400000 %}{{ s.expandtabs(400000) }}",
    "{{ 'a' | center(10 ** 10) }}",
    "{{ 'a'.ljust(10 ** 10) }}{{ 'a'.zfill(10 ** 10) }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '%*d' % (10 ** 10, 1) }}",
    "{{ '{:10000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10 ** 10) }}",
    "{{ '%10000000000d' | format(1) }}",
    "{{ [1] | batch(10 ** 10, 'x') | list }}",
    "{{ [1] | slice(10 ** 10) | list }}",
    "{{ [[[1]]] | tojson(indent=10 ** 9) }}",
    "{{ (5).to_bytes(10 ** 10, 'big') }}",
    "{{ 'aaaa'.translate({97: 'x' * 900000}) }}",
    "{{ lipsum(n=10 ** 9) }}",
    "{{ range(10 ** 9) | list }}",
    _MANY + "{% set l = r | list %}{{ l | select('in', l | reverse | list) | list | length }}",
    _MANY + "{{ r | map('string') | map('replace', '1', 'x' * 90000) | join | length }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.append(1) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ messages.__init__ }}{{ self._TemplateReference__context.environment }}{{ 1 / 0 }}",
    "{{ raise_exception('no') }}",
    "{% include 'x' %}",
    "{{ undefined_thing.attribute }}",
    "{{ strftime_now(5) }}",
    "{{ messages[0].content.nothing() }}",
    "{{ messages | sort }}{{ messages | tojson(1, 2, 3, 4, 5, 6, 7) }}",
    "{{ namespace(a=1) | tojson }}",
]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_SECONDS", 0.25)


@pytest.mark.parametrize("source", HOSTILE)
def test_a_hostile_template_ends_with_an_error_of_ours(bytes_pair: Pair, source: str) -> None:
    messages = [{"role": "user", "content": "hi"}]
    tracemalloc.start()
    began = time.thread_time()
    try:
        with pytest.raises((RequestError, ModelError)):
            ChatTemplate(bytes_pair.ours, source).text(messages)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.thread_time() - began < 2.5  # tracing makes everything slower
    assert peak < 150 << 20


def test_the_limits_leave_room_for_long_conversations(
    bytes_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conversations import CHATML

    monkeypatch.setattr(limits, "_SECONDS", 2.0)
    messages = [{"role": "system", "content": "s" * 100_000}]
    for turn in range(600):
        messages.append({"role": "user", "content": f"question {turn} " * 200})
        messages.append({"role": "assistant", "content": "<think>hm</think>\n" + "word " * 400})
    messages.append({"role": "user", "content": "x" * 5_000_000})
    text = ChatTemplate(bytes_pair.ours, CHATML).text(messages)
    assert len(text) > 7_000_000


def test_a_templates_complaint_is_told(bytes_pair: Pair) -> None:
    chat = ChatTemplate(bytes_pair.ours, "{{ raise_exception('only ' ~ 2 ~ ' turns') }}")
    with pytest.raises(RequestError, match="only 2 turns") as caught:
        chat.render([{"role": "user", "content": "x"}])
    assert caught.value.status == 400


def test_a_rendering_leaves_nothing_to_the_next(bytes_pair: Pair) -> None:
    chat = ChatTemplate(bytes_pair.ours, "{{ messages[0].content * 100 }}")
    with pytest.raises(RequestError, match="makes more than"):
        chat.text([{"role": "user", "content": "x" * 500_000}])
    for _ in range(100):
        assert chat.text([{"role": "user", "content": "x" * 5000}]) == "x" * 500_000
