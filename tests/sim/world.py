"""A toy engine around the real cache: every choice is its caller's, and everything is checked.

After each operation: the cache's own invariants, every sealed row and every checkpoint against
the hash of its path, every running row against the tokens of its sequence. At each admission,
for a model without states and while nothing had to be evicted: reuse is exactly the longest
common prefix with anything ever published, found by brute force. At each end: the uncached answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sim.invariants import nodes_of, parked, verify
from sim.memory import POISON, Memory, answer, chain, chains, choose, state_of

from strata.cache import Full, Lease, PrefixCache, Run, Wait
from strata.cache.trie import Node
from strata.types import Capture


@dataclass(eq=False)
class Seq:
    """A holder, as the engine's Sequence is one."""

    id: str
    tokens: list[int]
    out: int
    namespace: str = ""
    cached: bool = True
    anchors: tuple[int, ...] = ()
    stable_len: int = 0
    priority: int = 0
    prompt_len: int = 0
    order: int = 0
    status: str = "queued"
    lease: Lease | None = None
    computed: int = 0
    spent: int = 0  # tokens computed for it, replays included
    resumes: list[int] = field(default_factory=list)
    parked_at: int | None = None  # how deep it could have resumed when it parked
    woken_by_death: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        return (-self.priority, self.order)


class World:
    """See the module. `batch` rows run at once."""

    def __init__(
        self,
        pages: int = 64,
        block: int = 4,
        states: int | None = None,
        batch: int = 4,
    ) -> None:
        self.cache = PrefixCache(pages, block, states, page_bytes=3, state_bytes=50)
        self.memory = Memory(pages, block, states)
        self.block = block
        self.batch = batch
        self.hybrid = states is not None
        self.queue: list[Seq] = []
        self.parked: list[Seq] = []
        self.running: list[Seq] = []
        self.all: list[Seq] = []
        self.known: dict[str, set[int]] = {}  # hashes of prefixes that were published
        self.scarce = False  # something had to be evicted, or could not be published
        self.checks = 0

    # ------------------------------------------------------------ operations

    def submit(self, tokens: Sequence[int], out: int = 1, **facts: object) -> Seq:
        seq = Seq(f"r{len(self.all)}", list(tokens), out, **facts)  # type: ignore[arg-type]
        seq.prompt_len = len(seq.tokens)
        seq.order = len(self.all)
        self.all.append(seq)
        self.queue.append(seq)
        self.cache.touch(seq)
        self.check()
        return seq

    def admit(self) -> None:
        """Ask for everyone in the queue, best rank first, until the batch or memory is full."""
        for seq in self.cache.woken():
            self.parked.remove(seq)
            seq.status = "queued"
            self.queue.append(seq)
            if not (self.hybrid or self.scarce or seq.woken_by_death):
                assert seq.parked_at is not None and self._best(seq) > seq.parked_at, "for nothing"
        for seq in sorted(self.queue, key=lambda seq: seq.rank):
            if len(self.running) >= self.batch:
                break
            if not self._ask(seq):
                break
        for seq in self.queue:
            self.cache.touch(seq)

    def _ask(self, seq: Seq) -> bool:
        best = self._best(seq)
        got = self.cache.acquire(seq)
        if isinstance(got, Full):
            self.scarce = True
            self.check()
            return False
        self.queue.remove(seq)
        if isinstance(got, Wait):
            seq.status = "parked"
            self.parked.append(seq)
            seq.parked_at, seq.woken_by_death = best, False
        else:
            self._run(seq, got, best)
        self.check()
        return True

    def _best(self, seq: Seq) -> int:
        """The longest prefix of its prompt that anyone has published, one token left over."""
        if not seq.cached:
            return 0
        known = self.known.get(seq.namespace, set())
        best = 0
        for length, value in enumerate(chains(seq.tokens[:-1]), 1):
            if value in known:
                best = length
        return best

    def _run(self, seq: Seq, got: Run, best: int) -> None:
        lease = got.lease
        self.memory.copy(got.copies)
        seq.status, seq.lease, seq.computed = "running", lease, lease.resume_len
        seq.resumes.append(lease.resume_len)
        self.running.append(seq)
        assert 0 <= lease.resume_len < len(seq.tokens)
        self.scarce |= self.cache.stats().evicted_pages > 0
        if not self.scarce:
            if not self.hybrid:
                assert lease.resume_len == best, f"reused {lease.resume_len} of {best}"
            assert lease.resume_len <= best, "reused what nobody published"
            if not self.hybrid and seq.parked_at is not None and not seq.woken_by_death:
                assert lease.resume_len > seq.parked_at, "waiting did not pay"
        seq.parked_at = None

    def step(self, budget: int, lose: Callable[[], bool] = lambda: False) -> int:
        """Compute up to `budget` tokens; `lose` says which captures the runner drops."""
        rows = self._plan(budget)
        done = []
        for index, (seq, count) in enumerate(rows):
            assert seq.lease is not None
            plan = self.cache.captures(seq.lease, index, seq.computed, count)
            written = tuple(capture for capture in plan if not lose())
            self.scarce |= len(written) < len(plan)
            done.append((seq, count, self._forward(seq, count, written), written))
        for seq, count, token, written in done:
            self._commit(seq, count, token, written)
        self.check()
        return sum(count for _, count in rows)

    def fail(self, budget: int, retry: bool) -> None:
        """A step that breaks after having written everywhere it may write."""
        rows = self._plan(budget)
        for index, (seq, count) in enumerate(rows):
            lease = seq.lease
            assert lease is not None
            captures = self.cache.captures(lease, index, seq.computed, count)
            for capture in captures:
                self.memory.states[capture.slot] = POISON
            if lease.live is not None:
                self.memory.states[lease.live] = POISON
            for position in range(seq.computed, seq.computed + count):
                if position >= lease.writable_from:
                    self.memory.write(lease.pages, position, POISON)
        for seq, _ in rows:
            assert seq.lease is not None
            self._doom(seq)
            self.cache.discard(seq.lease)
            self.cache.discard(seq.lease)
            self._leave(seq, "queued" if retry else "failed")
        self.check()

    def abort(self, seq: Seq) -> None:
        """Its client went away, wherever it is."""
        if seq.status == "running":
            self._release(seq, "aborted")
        elif seq.status in ("queued", "parked"):
            self.cache.forget(seq)
            (self.queue if seq in self.queue else self.parked).remove(seq)
            seq.status = "aborted"
        self.check()

    def preempt(self, seq: Seq) -> None:
        self._release(seq, "queued")
        self.check()

    def clear(self) -> None:
        self.scarce = True
        before = self.cache.stats().pages_free
        freed = self.cache.clear()
        assert self.cache.stats().pages_free == before + freed
        self.check()

    def drain(self, budget: int = 64) -> None:
        """Run until nobody is left; it must end in bounded steps."""
        todo = sum(len(seq.tokens) + seq.out for seq in self.live())
        limit = 50 + 20 * todo
        while self.live():
            self.admit()
            self.step(budget)
            limit -= 1
            assert limit > 0, f"no progress: {[(s.id, s.status) for s in self.live()]}"
        assert not self.cache._parking._counts, "who is gone is not forgotten"

    def live(self) -> list[Seq]:
        return [*self.queue, *self.parked, *self.running]

    # ------------------------------------------------------------ inside a step

    def _plan(self, budget: int) -> list[tuple[Seq, int]]:
        """Rows by rank. Memory for one is made by preempting others of lower rank."""
        rows: list[tuple[Seq, int]] = []
        for seq in sorted(self.running, key=lambda seq: seq.rank):
            count = min(budget, len(seq.tokens) - seq.computed)
            while count and seq.status == "running":
                assert seq.lease is not None
                if self.cache.reserve(seq.lease, seq.computed + count):
                    rows.append((seq, count))
                    budget -= count
                    break
                self.scarce = True
                taken = [row[0] for row in rows]
                others = [s for s in self.running if s is not seq and s not in taken]
                if not others:
                    break
                self.preempt(max(others, key=lambda s: s.rank))
        return rows

    def _forward(self, seq: Seq, count: int, captures: Sequence[Capture]) -> int:
        """Compute from memory alone, and compare every read with the truth."""
        lease, memory = seq.lease, self.memory
        assert lease is not None
        start, truth = seq.computed, chains(seq.tokens[: seq.computed + count])
        if self.hybrid:
            assert lease.live is not None
            value = state_of(memory.states[lease.live])
        else:
            value = memory.row(lease.pages, start - 1) if start else 0
        assert value == (truth[start - 1] if start else 0), "resumed from the wrong state"
        for position in range(start, start + count):
            value = chain(value, seq.tokens[position])
            if position >= lease.writable_from:
                memory.write(lease.pages, position, value)
            for capture in captures:
                if capture.offset == position + 1 - start:
                    assert capture.position == position + 1
                    memory.states[capture.slot] = state_of(value)
        if lease.live is not None:
            memory.states[lease.live] = state_of(value)
        reads = [memory.row(lease.pages, position) for position in range(start + count)]
        assert reads == truth, "attention read a wrong row"
        seq.spent += count
        return choose(value, sum(reads))

    def _commit(self, seq: Seq, count: int, token: int, written: Sequence[Capture]) -> None:
        assert seq.lease is not None
        seq.computed += count
        self.memory.copy(self.cache.commit(seq.lease, seq.computed, written))
        self.scarce |= self.cache.stats().pages_free == 0  # a copy may have been left out
        self._publish(seq, max((c.position for c in written), default=0))
        if seq.computed == len(seq.tokens):
            seq.tokens.append(token)
            if len(seq.tokens) - seq.prompt_len >= seq.out:
                truth = answer(seq.tokens[: seq.prompt_len], seq.out)
                assert seq.tokens[seq.prompt_len :] == truth, "another answer than uncached"
                self._release(seq, "done")
        self.check()

    def _publish(self, seq: Seq, captured: int = 0, ended: bool = False) -> None:
        """What anyone may now reuse: whole blocks, the whole prompt, captures, at the end all."""
        assert seq.lease is not None
        if not seq.cached:
            return
        reach = max(captured, seq.computed - seq.computed % self.block)
        if ended or seq.computed == seq.lease.target:
            reach = seq.computed
        known = self.known.setdefault(seq.namespace, set())
        known.update(chains(seq.tokens[:reach]))

    def _release(self, seq: Seq, status: str) -> None:
        lease = seq.lease
        assert lease is not None
        self._doom(seq)
        self._publish(seq, ended=True)
        self.memory.copy(self.cache.release(lease, seq.computed))
        assert self.cache.release(lease, seq.computed) == ()
        self._leave(seq, status)

    def _doom(self, owner: Seq) -> None:
        for _, lease, _ in parked(self.cache):
            if lease is owner.lease:
                for seq in self.parked:
                    seq.woken_by_death = True

    def _leave(self, seq: Seq, status: str) -> None:
        self.running.remove(seq)
        seq.lease, seq.computed, seq.status = None, 0, status
        if status == "queued":
            self.queue.append(seq)

    # ------------------------------------------------------------ checks

    def check(self) -> None:
        """Every invariant, structural and of content."""
        self.checks += 1
        cache, memory = self.cache, self.memory
        verify(cache)
        slots = cache._states._free if self.hybrid else []  # type: ignore[attr-defined]
        memory.poison(cache._pages._free, slots)
        stats = cache.stats()
        assert stats.running == len(self.running) and stats.parked + len(
            cache._parking._woken
        ) == len(self.parked)
        if not self.running:
            assert stats.pages_free + stats.pages_cached == stats.pages_total, "a leak"
            assert stats.states_free + stats.states_cached == stats.states_total, "a leak"
            assert not self.parked or cache._parking._woken, "parked for nobody"
        self._check_nodes()
        for seq in self.running:
            lease = seq.lease
            assert lease is not None
            assert lease.computed_len == seq.computed or not lease.open
            pages = lease.pages
            rows = [memory.row(pages, position) for position in range(seq.computed)]
            assert rows == chains(seq.tokens[: seq.computed]), "a running row was overwritten"

    def _check_nodes(self) -> None:
        """Each sealed row and each checkpoint is that of its path."""
        trie, memory = self.cache._trie, self.memory
        values: dict[Node, int] = dict.fromkeys(trie.roots.values(), 0)
        for node in nodes_of(trie):  # parents come first
            if node.owner is not None:
                continue
            assert node.parent is not None and node.page is not None
            value, rows = values[node.parent], []
            for token in array("i", node.key):
                value = chain(value, token)
                rows.append(value)
            assert memory.pages[node.page][: len(rows)] == rows, "a sealed page holds other rows"
            values[node] = value
            if node.checkpoint is not None:
                held = memory.states[node.checkpoint.slot]
                assert held == state_of(value), "a checkpoint of another place"
