"""The page's files as they are served: who gets the page, their kinds and tags, and that they
need nothing from elsewhere.
"""

from __future__ import annotations

import mimetypes
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "strata" / "server" / "web"
NAMES = sorted(
    path.name for path in WEB.iterdir() if path.suffix in (".html", ".css", ".js", ".svg")
)
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
MODULES = [name for name in NAMES if name.endswith(".js")]


def source(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Every tag with its attributes, and every text inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.inside.append(data)


@pytest.fixture(scope="module")
def start() -> Tags:
    tags = Tags()
    tags.feed(source("index.html"))
    return tags


def test_a_browser_gets_the_page_and_others_get_json(call):
    page = call("GET", "/", headers=BROWSER)
    assert page.status == 200 and page.body == (WEB / "index.html").read_bytes()
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for accept in ("*/*", "application/json", "text/event-stream"):
        answer = call("GET", "/", headers={"accept": accept})
        assert answer.json()["name"] == "strata"
        assert answer.headers["vary"] == page.headers["vary"] == "accept"
    assert call("GET", "/v1", headers=BROWSER).json()["name"] == "strata"


def test_head_has_no_body(call):
    for headers in (None, BROWSER):
        head = call("HEAD", "/", headers=headers)
        assert head.status == 200 and head.body == b""
        whole = call("GET", "/", headers=headers)
        assert head.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_comes_as_it_is_with_its_kind(call, name):
    answer = call("GET", f"/web/{name}")
    assert answer.status == 200 and answer.body == (WEB / name).read_bytes()
    kind, _, more = answer.headers["content-type"].partition("; ")
    assert kind == mimetypes.guess_type(name)[0]
    assert more == ("" if name.endswith(".svg") else "charset=utf-8")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


def test_who_has_a_file_is_told_that_it_holds(call):
    tag = call("GET", "/web/main.js").headers["etag"]
    assert re.fullmatch(r'"[^"]{8,}"', tag)
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        answer = call("GET", "/web/main.js", headers={"if-none-match": known})
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == tag and "content-length" not in answer.headers
    for known in ('"other"', tag[1:-1]):
        assert call("GET", "/web/main.js", headers={"if-none-match": known}).status == 200
    assert call("GET", "/web/dom.js").headers["etag"] != tag


def test_there_are_no_other_files(call):
    for path in ("/web/__init__.py", "/web/none.js", "/web/..%2fapp.py", "/web/../app.py", "/web/"):
        answer = call("GET", path)
        assert answer.status == 404 and answer.error["message"], path
    assert call("POST", "/web/main.js").status == 405


def test_the_page_is_public_and_its_figures_are_not(make_call):
    call = make_call(api_keys=("secret",))
    assert call("GET", "/", headers=BROWSER).status == 200
    assert call("GET", "/web/main.js").status == 200
    assert call("GET", "/v1/monitor").status == 401


def test_nothing_runs_or_loads_but_files_of_ours(call, start):
    policy = dict(
        part.strip().split(" ", 1)
        for part in call("GET", "/", headers=BROWSER).headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'self'" and policy["object-src"] == "'none'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert not start.inside, "inline scripts and styles do not run under the policy"
    for tag, attributes in start.tags:
        assert not [a for a in attributes if a == "style" or a.startswith("on")], tag
    for name in NAMES:
        outside = re.findall(
            r"(?:src|href|url|import|fetch)\W{1,3}https?://[^\s\"']+", source(name)
        )
        assert not outside, name


def test_every_file_is_used_and_every_used_file_is_there(start):
    used = {a.get("src") or a.get("href") for _, a in start.tags} - {None}
    assert all(re.match(r"(/web/|/v1/|#)", link) for link in used)
    found = {link.removeprefix("/web/") for link in used if link.startswith("/web/")}
    for name in NAMES:
        found |= set(re.findall(r'from "\./([\w.]+)"', source(name)))
    assert found | {"index.html"} == set(NAMES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short_and_makes_no_html_from_text(name):
    text = source(name)
    assert text.startswith("// ") and len(text.splitlines()) < 300
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(", text
    )


def test_ids_that_the_modules_use_are_there_once(start):
    ids = [a["id"] for _, a in start.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    used = {one for name in MODULES for one in re.findall(r'\$\("([\w-]+)"\)', source(name))}
    assert used <= set(ids), used - set(ids)
    named = {
        a[key]
        for _, a in start.tags
        for key in ("for", "aria-controls", "aria-labelledby")
        if key in a
    }
    assert named <= set(ids)
