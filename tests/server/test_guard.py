"""Host, Origin, keys and namespaces; paths and methods."""

from __future__ import annotations

import pytest

from strata.server.guard import Access, _known_host, is_loopback, own_names


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:8080", "[::1]:80", "[::1]",
     "192.168.1.5:8080", "a.localhost", "box.lan:1", "Box.LAN"],
)  # fmt: skip
def test_known_hosts(host):
    assert _known_host(host, Access(hosts=frozenset({"box.lan"})))


@pytest.mark.parametrize(
    "host",
    ["evil.com", "evil.com:8080", "localhost.evil.com", "127.0.0.1.evil.com", "", ":80",
     "user@localhost", "localhost:80:90", "localhost:x", "localhost/x", "[::1", "1"],
)  # fmt: skip
def test_unknown_hosts(host):
    assert not _known_host(host, Access(hosts=frozenset({"box.lan"})))


def test_host_header(call, make_call):
    answer = call("GET", "/v1/models", headers={"host": "evil.com"})
    assert (answer.status, answer.error["code"]) == (403, "host_not_allowed")
    assert call("GET", "/nothing", headers={"host": "evil.com"}).status == 403
    assert call("GET", "/health", headers={"host": "evil.com"}).status == 403
    anyone = make_call(hosts=frozenset({"*"}))
    assert anyone("GET", "/v1/models", headers={"host": "evil.com"}).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8080", 200),
        ("http://localhost", 403),
        ("http://localhost:3000", 403),
        ("https://evil.com", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
def test_origin(call, origin, status):
    headers = {"host": "localhost:8080", "origin": origin}
    assert call("GET", "/v1/models", headers=headers).status == status


def test_cors_is_off(call):
    headers = {"origin": "http://localhost", "access-control-request-method": "POST"}
    answer = call("OPTIONS", "/v1/completions", headers=headers)
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_listed_origin_gets_cors(make_call):
    call = make_call(origins=frozenset({"https://chat.example"}))
    headers = {"origin": "https://chat.example", "access-control-request-method": "POST"}
    answer = call("OPTIONS", "/v1/completions", headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    answer = call("GET", "/v1/models", headers={"origin": "https://chat.example"})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (
        200,
        "https://chat.example",
    )
    assert call("GET", "/v1/models", headers={"origin": "https://evil.com"}).status == 403


def test_keys(make_call, engine):
    call = make_call(api_keys=("one", "two"))
    for headers in ({}, {"authorization": "Bearer three"}, {"authorization": "Basic one"},
                    {"authorization": "Bearer"}, {"x-api-key": ""},
                    {"authorization": "Bearer on"}):  # fmt: skip
        answer = call("GET", "/v1/models", headers=headers)
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    for headers in ({"authorization": "Bearer one"}, {"authorization": "bearer two"},
                    {"x-api-key": "two"}):  # fmt: skip
        assert call("GET", "/v1/models", headers=headers).status == 200


def test_what_needs_no_key(make_call):
    call = make_call(api_keys=("one",))
    for path in ("/health", "/v1/health", "/", "/openapi.json"):
        assert call("GET", path).status == 200
    for path in ("/metrics", "/v1/requests", "/models"):
        assert call("GET", path).status == 401
    assert call("POST", "/tokenize", {"prompt": "a"}).status == 401
    assert call("GET", "/nothing").status == 404


def test_namespaces(make_call, engine):
    def spaces(keys, *requests):
        engine.requests.clear()
        call = make_call(api_keys=keys)
        for key, salt in requests:
            body = {"prompt": "a", "cache_salt": salt}
            headers = {"authorization": f"Bearer {key}"}
            assert call("POST", "/v1/completions", body, headers=headers).status == 200
        return [r.namespace for r in engine.requests]

    assert spaces((), ("x", None), ("y", None), ("x", "")) == ["", "", ""]
    assert spaces(("x",), ("x", None)) == [""]
    a, b, c, d, e = spaces(
        ("x", "y"), ("x", None), ("y", None), ("x", "s"), ("y", "s"), ("x", None)
    )
    assert len({a, b, c, d}) == 4 and a == e
    assert all("x" not in space and "y" not in space for space in (a, b, c, d))


def test_several_host_headers(call):
    import asyncio

    sent = []

    async def ask():
        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/health", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"host", b"evil.com")],
        }  # fmt: skip
        await call.app(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    ("host", "yes"),
    [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("localhost", True), ("127.9.9.9", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.com", False)],
)  # fmt: skip
def test_is_loopback(host, yes):
    assert is_loopback(host) is yes


def test_own_names():
    import socket

    assert own_names("127.0.0.1") == {"127.0.0.1"}
    assert socket.gethostname().lower() in own_names("0.0.0.0")


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE")


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/chat/completions", {"POST"}),
        ("/completions", {"POST"}),
        ("/tokenize", {"POST"}),
        ("/detokenize", {"POST"}),
        ("/models", {"GET", "HEAD"}),
        ("/models/toy", {"GET", "HEAD"}),
        ("/requests", {"GET", "HEAD"}),
        ("/health", {"GET", "HEAD"}),
        ("/metrics", {"GET", "HEAD"}),
        ("/openapi.json", {"GET", "HEAD"}),
    ],
)
def test_methods(call, prefix, path, allowed):
    for method in METHODS:
        answer = call(method, prefix + path)
        if method in allowed:
            assert answer.status == (400 if method == "POST" else 200)
        else:
            assert answer.status == 405
            assert set(answer.headers["allow"].split(", ")) == allowed
            assert method == "HEAD" or answer.error["code"] == "method_not_allowed"
        if method == "HEAD" and method in allowed:
            assert answer.body == b""
            # The scrape itself is counted, so two pages of metrics differ in length.
            if "metrics" not in path:
                length = len(call("GET", prefix + path).body)
                assert int(answer.headers["content-length"]) == length


def test_unknown_paths(call):
    for path in ("/nothing", "/v1/nothing", "/v1/chat", "/v1/chat/completions/", "/v2/models"):
        for method in ("GET", "POST", "OPTIONS", "TRACE"):
            answer = call(method, path)
            assert (answer.status, answer.error["code"]) == (404, "not_found"), path
