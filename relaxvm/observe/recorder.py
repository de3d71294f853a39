"""The hook of `relaxvm.profile`: times calls and runs, with one record per thread.

The VM calls a hook before and after each call instruction, and around each run (pc `RUN`; a run
that raises ends with `RUN_FAILED`).  A recorder keeps the active calls on a stack per thread, so it
takes no lock while a program runs.  When a run ends, its remaining calls are popped: an exception
cannot unbalance the stack.

The time spent inside the hook is measured and subtracted everywhere.  The clock is read on entry
to and on exit from the hook, so the time of a call always includes its nested calls.  The overhead
of entering and leaving the hook is estimated and subtracted as well.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from .._core import Storage
from ..values import Shape

__all__ = ["RUN", "RUN_FAILED", "Node", "Recorder", "Site", "Tally", "ThreadRecord"]

RUN: Final = -1
"""pc of the events around a run."""
RUN_FAILED: Final = -2
"""pc of the last event of a run that raised."""

MAX_SHAPES: Final = 64
"""The most distinct argument lists kept per call site; the others are counted together."""
MAX_DEPTH: Final = 256
"""The maximal depth of the tree of stacks: a recursion of 10,000 calls must stay printable."""
DEEPER: Final = "[deeper]"
EVENT_WORDS: Final = 4
"""Words of an event: site, start, end, nanoseconds without those of the hook."""
OPEN: Final = -1
"""The end of an event whose call is still active."""

_ALLOCATION_WORDS: Final = ("alloc", "free", "null_value", "kill", "clear")

ArgKey = tuple[Any, ...]
"""The key of an argument list; for each argument (dtype, shape), a Shape, or a class."""
Clock = Callable[[], int]
MemoryReader = Callable[[], tuple[int, int]]


class Tally:
    """Times of the calls of one function or of one call site, in nanoseconds."""

    __slots__ = (
        "active", "allocated", "count", "errors", "max", "min", "nbytes", "own", "total"
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.total = 0
        self.own = 0
        self.min = 0
        self.max = 0
        self.nbytes = 0
        self.allocated = 0
        self.active = 0

    def add(self, elapsed: int, own: int) -> None:
        """Count a call that has just ended.  In a recursion only the outermost call adds to the
        total, which includes the inner ones."""
        if self.count == 0 or elapsed < self.min:
            self.min = elapsed
        if elapsed > self.max:
            self.max = elapsed
        self.count += 1
        self.own += own
        self.active -= 1
        if self.active == 0:
            self.total += elapsed


class Site(Tally):
    """A call site: the instruction at `pc`, or, with pc `RUN`, a call of a function by Python."""

    __slots__ = ("function", "index", "name", "pc", "samples", "shapes")

    def __init__(self, index: int, pc: int, name: str, function: Tally) -> None:
        super().__init__()
        self.index = index
        self.pc = pc
        self.name = name
        self.function = function
        self.samples = any(word in name for word in _ALLOCATION_WORDS)
        self.shapes: dict[ArgKey | None, int] = {}


class Node:
    """A stack of function names, as a node of the tree of all recorded stacks."""

    __slots__ = ("children", "name", "own")

    def __init__(self, name: str) -> None:
        self.name = name
        self.own = 0
        self.children: dict[str, Node] = {}


class Call:
    """An active call."""

    __slots__ = ("depth", "event", "hook", "inner", "node", "site", "start")

    def __init__(self, site: Site, node: Node, depth: int, event: int) -> None:
        self.site = site
        self.node = node
        self.depth = depth
        self.event = event
        self.inner = 0
        self.start = 0
        self.hook = 0


class ThreadRecord:
    """The records of one thread."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        self.name = thread.name
        self.native_id = threading.get_native_id()
        self.calls: list[Call] = []
        self.sites: list[Site] = []
        self.by_pc: dict[int, Site] = {}
        self.by_name: dict[str, Site] = {}
        self.functions: dict[str, Tally] = {}
        self.root = Node("")
        self.events = array("q")
        self.dropped = 0
        self.hook_ns = 0
        self.left_out = 0
        self.hook_events = 0
        self.wall_ns = 0
        self.runs = 0
        self.sample_due = False

    def site(self, pc: int, name: str) -> Site:
        """Return the site of a call instruction, or of a run."""
        known = self.by_name.get(name) if pc == RUN else self.by_pc.get(pc)
        if known is not None:
            return known
        function = self.functions.setdefault(name, Tally())
        site = Site(len(self.sites), pc, name, function)
        self.sites.append(site)
        if pc == RUN:
            self.by_name[name] = site
        else:
            self.by_pc[pc] = site
        return site


class Recorder:
    """A hook of the VM that records times, arguments, events and memory.

    Args:
        read_memory: returns live and cached bytes; None for no allocation timeline.
        shapes: whether to record shapes and dtypes of arguments, and their bytes.
        max_events: the most events kept for the trace, over all threads; later ones are only
            counted.
        clock: returns nanoseconds.
        state: what the VM keeps from one call to the next; calls that return it allocate nothing.
    """

    def __init__(
        self,
        read_memory: MemoryReader | None,
        *,
        shapes: bool,
        max_events: int,
        clock: Clock = perf_counter_ns,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.recording = False
        self.half_way_ns = 0
        """Half of the time to enter and leave the hook; subtracted from all times."""
        self.threads: list[ThreadRecord] = []
        self.memory: list[tuple[int, int, int]] = []
        self.dropped_samples = 0
        self._events_left = max_events
        self._max_samples = max_events
        self._read_memory = read_memory
        self._shapes = shapes
        self._state = {} if state is None else state
        self._kept: frozenset[int] = frozenset()
        self._clock = clock
        self._local = threading.local()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start recording."""
        for thread in self.threads:
            # Runs that were active when recording stopped have ended since, or are not recorded.
            while thread.calls:
                self._drop(thread)
        self.recording = True
        self.sample_memory()

    def stop(self) -> None:
        """Stop recording; active calls are not counted."""
        self.sample_memory()
        self.recording = False

    def __call__(
        self, pc: int, before: bool, func: Any, name: str, ret: Any, args: tuple[Any, ...]
    ) -> None:
        now = self._clock()
        if not self.recording:
            return
        try:
            thread: ThreadRecord = self._local.record
        except AttributeError:
            thread = self._new_thread()
        if thread.sample_due:
            self._sample(thread, now)
        if before:
            call = self._begin(thread, pc, name, args)
            call.start = self._clock()
            inside = call.start - now
            call.hook = thread.left_out + self.half_way_ns + inside
            thread.left_out = call.hook + self.half_way_ns
        else:
            thread.left_out += self.half_way_ns
            if pc >= 0:
                self._end_call(thread, pc, now, ret, args)
            else:
                self._end_run(thread, now, failed=pc == RUN_FAILED)
            inside = self._clock() - now
            thread.left_out += inside + self.half_way_ns
        thread.hook_ns += inside
        thread.hook_events += 1

    def _new_thread(self) -> ThreadRecord:
        record = ThreadRecord()
        self._local.record = record
        with self._lock:
            self.threads.append(record)
        return record

    def _begin(self, thread: ThreadRecord, pc: int, name: str, args: tuple[Any, ...]) -> Call:
        calls = thread.calls
        site = thread.site(pc, name)
        site.active += 1
        site.function.active += 1
        if pc == RUN:
            self._kept = frozenset(map(id, list(self._state.values())))
        if self._shapes:
            self._note_args(site, args)
        parent, depth = (calls[-1].node, calls[-1].depth) if calls else (thread.root, 0)
        if depth < MAX_DEPTH:
            depth += 1
            node = _child(parent, name)
        else:
            node = parent if parent.name == DEEPER else _child(parent, DEEPER)
        call = Call(site, node, depth, self._open_event(thread, site))
        calls.append(call)
        return call

    def _open_event(self, thread: ThreadRecord, site: Site) -> int:
        # A slot is reserved when a call begins, so that all callers of a kept call are kept.
        if self._events_left <= 0:
            thread.dropped += 1
            return -1
        self._events_left -= 1
        index = len(thread.events)
        thread.events.extend((site.index, 0, OPEN, 0))
        return index

    def _note_args(self, site: Site, args: tuple[Any, ...]) -> None:
        nbytes = 0
        key: list[Any] = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                nbytes += arg.nbytes
                key.append((arg.dtype, arg.shape))
            else:
                key.append(arg if isinstance(arg, Shape) else type(arg))
        site.nbytes += nbytes
        site.function.nbytes += nbytes
        seen = site.shapes
        entry: ArgKey | None = tuple(key)
        if entry not in seen and len(seen) >= MAX_SHAPES:
            entry = None
        seen[entry] = seen.get(entry, 0) + 1

    def _end_call(
        self, thread: ThreadRecord, pc: int, now: int, ret: Any, args: tuple[Any, ...]
    ) -> None:
        if not self._drop_above(thread, pc):
            return
        site = thread.calls[-1].site
        if self._read_memory is not None:
            allocated = 0 if id(ret) in self._kept else _allocated(ret, args)
            site.allocated += allocated
            site.function.allocated += allocated
        if self._shapes and isinstance(ret, np.ndarray):
            site.nbytes += ret.nbytes
            site.function.nbytes += ret.nbytes
        if site.samples and self._read_memory is not None:
            # Only after this event the result is in its register, and a killed value is released.
            thread.sample_due = True
        self._close(thread, now, failed=False)

    def _end_run(self, thread: ThreadRecord, now: int, *, failed: bool) -> None:
        calls = thread.calls
        if failed:
            while calls and calls[-1].site.pc != RUN:
                self._close(thread, now, failed=True)
        if not self._drop_above(thread, RUN):
            return
        elapsed = self._close(thread, now, failed=failed)
        if not calls:
            thread.runs += 1
            thread.wall_ns += elapsed
            thread.sample_due = self._read_memory is not None

    def _close(self, thread: ThreadRecord, now: int, *, failed: bool) -> int:
        """End the innermost call; return its time without that of the hook."""
        call = thread.calls.pop()
        # The overhead of calling the hook is an estimate, so it may exceed the measured time.
        elapsed = max(call.inner, now - call.start - (thread.left_out - call.hook))
        own = elapsed - call.inner
        if thread.calls:
            thread.calls[-1].inner += elapsed
        site = call.site
        site.add(elapsed, own)
        site.function.add(elapsed, own)
        if failed:
            site.errors += 1
            site.function.errors += 1
        call.node.own += own
        if call.event >= 0:
            events, at = thread.events, call.event
            events[at + 1], events[at + 3] = call.start, elapsed
            events[at + 2] = now  # written last: an event with an end counts as complete
        return elapsed

    def _drop_above(self, thread: ThreadRecord, pc: int) -> bool:
        """Discard the calls of this run above the one at `pc`: another hook has made the VM skip
        them, so they do not end.  Return False if no start of the call at `pc` was recorded."""
        calls = thread.calls
        for i in range(len(calls) - 1, -1, -1):
            if calls[i].site.pc == pc:
                while len(calls) > i + 1:
                    self._drop(thread)
                return True
            if calls[i].site.pc == RUN:
                break
        return False

    def _drop(self, thread: ThreadRecord) -> None:
        """Discard a call that did not take place; its time counts as self time of the caller."""
        call = thread.calls.pop()
        call.site.active -= 1
        call.site.function.active -= 1
        if thread.calls:
            thread.calls[-1].inner += call.inner

    def _sample(self, thread: ThreadRecord, now: int) -> None:
        thread.sample_due = False
        self.sample_memory(now)

    def sample_memory(self, now: int | None = None) -> None:
        """Append a sample to the allocation timeline if the numbers have changed."""
        if self._read_memory is None:
            return
        live, cached = self._read_memory()
        if self.memory and self.memory[-1][1:] == (live, cached):
            return
        if len(self.memory) >= self._max_samples:
            self.dropped_samples += 1
            return
        self.memory.append((self._clock() if now is None else now, live, cached))


def _allocated(ret: Any, args: tuple[Any, ...]) -> int:
    """Return the bytes of a result that did not exist before the call: a storage, or an array with
    memory of its own."""
    if isinstance(ret, Storage):
        return int(ret.nbytes)
    if isinstance(ret, np.ndarray) and ret.flags.owndata and not any(ret is arg for arg in args):
        return int(ret.nbytes)
    return 0


def _child(node: Node, name: str) -> Node:
    child = node.children.get(name)
    if child is None:
        child = node.children[name] = Node(name)
    return child
