"""The screen: what the feed tells, newest above, and the keys.

Owns a `Seen`. Text that comes from the server is never read as markup. Without a connection the
last figures stay, under a sentence that says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from strata.cli.monitor import lines, tables, wording
from strata.cli.monitor.feed import Feed, Trouble
from strata.cli.monitor.seen import Seen
from strata.cli.monitor.told import Entry
from strata.types import StrataError

FEW = 20  # finished requests that are shown before all are asked for
_STYLES = {"failed": "red", "cancelled": "yellow", "repetition": "yellow"}
_KEYS = """\
q  quit                     d, Enter  details of the chosen row
/  filter (Esc: no more)    e         export the finished ones that are shown as CSV
a  show all, or the newest  ?         this"""


class Words(ModalScreen[None]):
    """A few lines over the screen; asked for anew each second, None leaves them as they are."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,d,enter,question_mark", "dismiss", "Back")
    ]

    def __init__(self, text: Callable[[], str | None]) -> None:
        """`text` is what to show."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The lines in a frame that can be scrolled."""
        with VerticalScroll():
            yield Static(id="words", markup=False)

    def on_mount(self) -> None:
        """Show, and keep showing what is newest."""
        self._show()
        self.set_interval(1.0, self._show)

    def _show(self) -> None:
        if (text := self._text()) is not None:
            self.query_one("#words", Static).update(text)


class Monitor(App[None]):
    """The Monitor of one server."""

    CSS_PATH = "style.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "strata monitor"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("a", "all", "Show all"),
        Binding("e", "export", "Export CSV"),
        Binding("d", "details", "Details"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "unfilter", show=False),
    ]

    def __init__(self, feed: Feed) -> None:
        """Connects once it is shown, and closes `feed` when it ends."""
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours
        self._feed = feed
        self._seen = Seen()
        self._trouble: str | None = None
        self._all = False
        self._shown: list[Entry] = []

    def compose(self) -> ComposeResult:
        """From the title down to the keys."""
        for name in ("title", "state", "speeds", "facts", "heads"):
            yield Static(id=name, markup=False)
        yield OptionList(id="rows", markup=False)
        yield Static(id="note", markup=False)
        yield Input(id="filter", placeholder="words that a row must have", compact=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to follow the server."""
        self.query_one("#title", Static).update(f"Strata · {self._feed.url}")
        self.query_one("#state", Static).update("Connecting")
        self.query_one("#rows", OptionList).focus()
        self._follow()

    @work
    async def _follow(self) -> None:
        async with self._feed as feed:
            async for told in feed.follow():
                if isinstance(told, Trouble):
                    self._trouble = told
                else:
                    self._trouble = None
                    self._seen.take(told)
                self._show()

    def on_resize(self, event: Resize) -> None:
        """Lay everything out for the new width."""
        self.call_after_refresh(self._show)

    # ------------------------------------------------------------ what is shown

    def _show(self) -> None:
        base, width = self.screen_stack[0], self.size.width
        state = base.query_one("#state", Static)
        state.set_class(self._trouble is not None, "trouble")
        now = self._seen.now
        if self._trouble is not None:
            stale = f" (figures of {wording.clock(now.time)})" if now else ""
            why = self._trouble[:1].upper() + self._trouble[1:]
            state.update(f"{why}; trying again{stale}")
        if now is None:
            return
        if self._trouble is None:
            state.update(wording.headline(now))
        base.query_one("#title", Static).update(lines.title(now, self._feed.url))
        base.query_one("#speeds", Static).update("\n".join(lines.speeds(self._seen, width)))
        base.query_one("#facts", Static).update("\n".join(lines.facts(now, width)))
        self._show_table(width)

    def _wanted(self) -> tuple[list[Entry], list[Entry]]:
        """Who lives and who has ended, as filtered."""
        words = self.screen_stack[0].query_one("#filter", Input).value
        live, ended = self._seen.live(), self._seen.finished()
        return (
            [one for one in live if tables.matches(one, words)],
            [one for one in ended if tables.matches(one, words)],
        )

    def _show_table(self, width: int) -> None:
        base = self.screen_stack[0]
        live, ended = self._wanted()
        shown = [*live, *(ended if self._all else ended[:FEW])]
        heads, rows = tables.table(shown, self._seen.tier(), width)
        base.query_one("#heads", Static).update("\n".join(heads))
        options = base.query_one("#rows", OptionList)
        texts = [Text(row, self._style(one)) for row, one in zip(rows, shown, strict=True)]
        if [one.id for one in shown] == [one.id for one in self._shown]:
            for at, text in enumerate(texts):
                options.replace_option_prompt_at_index(at, text)
        else:
            self._replace(options, shown, texts)
        self._shown = shown
        known = len(self._seen.live()) + len(self._seen.finished())
        said = f"{len(shown)} of {known} shown" if known else "No request yet"
        base.query_one("#note", Static).update(said)

    def _replace(self, options: OptionList, shown: list[Entry], texts: list[Text]) -> None:
        """Other rows: the chosen one stays chosen, wherever it is now."""
        chosen, top = self._chosen(), options.highlighted in (None, 0)
        options.clear_options()
        options.add_options([Option(text) for text in texts])
        ids = [one.id for one in shown]
        if ids:
            options.highlighted = 0 if top or chosen not in ids else ids.index(chosen or "")

    def _style(self, entry: Entry) -> str:
        return "bold" if wording.lives(entry) else _STYLES.get(entry.status, "")

    def _chosen(self) -> str | None:
        """The id of the row under the cursor."""
        at = self.screen_stack[0].query_one("#rows", OptionList).highlighted
        return self._shown[at].id if at is not None and at < len(self._shown) else None

    # ------------------------------------------------------------ keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the table wait while something lies over it."""
        over = len(self.screen_stack) > 1
        return not over or action not in ("filter", "all", "export", "details", "help", "unfilter")

    def action_filter(self) -> None:
        """Open the line of the filter."""
        line = self.query_one("#filter", Input)
        line.add_class("open")
        line.focus()

    def action_unfilter(self) -> None:
        """Close it and show everything again."""
        line = self.query_one("#filter", Input)
        line.value = ""
        line.remove_class("open")
        self.query_one("#rows", OptionList).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the table; an empty filter is closed."""
        if not event.value.strip():
            self.action_unfilter()
        self.query_one("#rows", OptionList).focus()

    async def action_all(self) -> None:
        """All finished requests that the server knows, or only the newest."""
        self._all = not self._all
        if self._all:
            try:
                self._seen.add((await self._feed.older()).data)
            except StrataError as error:
                self._say(str(error))
                return
        self._show()

    def action_export(self) -> None:
        """Write the finished requests that the filter lets through into this folder."""
        _, ended = self._wanted()
        name = time.strftime("strata-requests-%Y-%m-%dT%H-%M-%S.csv")
        path = Path.cwd() / name
        try:
            path.write_text(tables.exported(ended), encoding="utf-8", newline="")
        except OSError as error:
            self._say(f"Cannot write {path}: {error.strerror or error}")
        else:
            self._say(f"{len(ended)} requests written to {name}")

    def action_details(self) -> None:
        """All figures of the chosen row."""
        if (chosen := self._chosen()) is not None:
            self.push_screen(Words(lambda: self._details(chosen)))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        self.action_details()

    def _details(self, name: str) -> str | None:
        entries = (*self._seen.live(), *self._seen.finished())
        found = next((one for one in entries if one.id == name), None)
        return "\n".join(tables.details(found)) if found else None

    def action_help(self) -> None:
        """Keys, and what each figure means."""
        from strata.server.monitor.definitions import DEFINITIONS

        meant = "\n".join(f"{name}: {text}" for name, text in DEFINITIONS.items())
        self.push_screen(Words(lambda: f"{_KEYS}\n\n{meant}"))

    def _say(self, text: str) -> None:
        self.notify(text, markup=False)
