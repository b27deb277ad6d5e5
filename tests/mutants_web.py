"""Injected bugs of the page's files, in the form of `ENGINE`."""

from __future__ import annotations

from mutants_engine import Bug

FILES = ("tests/server/test_web.py",)

WEB: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.server.web",
        FILES,
        [
            (
                "who has a file gets it again",
                "if file.tag in (",
                "if None in (",
            ),
            (
                "a proxy's weak tag is not known",
                'tag.strip().removeprefix("W/")',
                "tag.strip()",
            ),
            ("files have no policy", '(b"content-security-policy", _POLICY),', ""),
            ("the page may be framed", "frame-ancestors 'none'", "frame-ancestors *"),
            ("everyone gets the page", 'any("text/html" in value.lower()', "any(value"),
            (
                "modules are plain text",
                'b"text/javascript; charset=utf-8"',
                'b"text/plain; charset=utf-8"',
            ),
            (
                "sources are served too",
                "if kind is not None:",
                'if kind or (kind := b"text/plain"):',
            ),
        ],
    ),
    (
        "strata.server.app",
        FILES,
        [
            (
                "caches mix the two answers up",
                "facts.about(self._lobby), headers=web.VARY",
                "facts.about(self._lobby)",
            ),
            ("the API's root is a page", 'exchange.scope["path"] == "/" and ', ""),
        ],
    ),
    (
        "strata.server.exchange",
        FILES,
        [
            (
                "304 has a length",
                "await self._begin(304, list(headers))",
                'await self._begin(304, [*headers, (b"content-length", b"0")])',
            )
        ],
    ),
]
