"""KV computed after a withdrawal is read after its own event, whatever its pages, layers and order.

The pages hold poison until somebody waits for the forward's event, so a gather that is ordered after another event, or
reads other pages, shows in the bytes.  Every pair of features is tried in some story.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
import torch
from support.night import by_night
from support.stories import layout

from kvproto.data.room_entry import RoomEntry
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.base import Pool
from kvproto.io.kernels.crossing import Launch
from kvproto.io.kernels.torch import HostCopy
from kvproto.io.transports.base import Transport
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing.forwards import Forward
from kvproto.verify.testing.pair import Pair

CHUNK_TOKENS, TOKENS, POISON = 8, 45, 99

FEATURES: dict[str, tuple[Any, ...]] = {
    "route": ("cost", "pages", "mapped"), "groups": (1, 2), "ranks": (1, 2), "page": (4, 8),
    "prefix": (0, CHUNK_TOKENS),
    "late": (False, True), "prefetch": (True, False), "early_aux": (True, False), "others": (True, False),
    "first": (0, 16, 20, TOKENS), "layers": (0, 1), "upto": (0, 12, 16, 32, TOKENS), "again": (False, True),
    "turns": (0, 1, 5, 30), "other_end": ("none", "aborted"), "packed": (False, True),
    "end": ("success", "prefill aborts", "decode aborts"),
}  # fmt: skip
Story = dict[str, Any]


class StoryPair(Pair):
    """A pair whose pools can be `mapped` (addressed by one another) and `packed` (a page of all layers)."""

    def __init__(self, *args: Any, mapped: bool, packed: bool, **named: Any) -> None:
        self.mapped, self.packed = mapped, packed
        super().__init__(*args, **named)

    def transport(self) -> Transport:
        return MemoryTransport(self.fabric, maps=self.mapped)

    def pool(self, layout: Layout, index: int, seed: int) -> Pool:
        apart = super().pool(layout, index, seed)
        if not self.packed:
            return apart
        rows = torch.stack([*apart.k, *apart.v], dim=1).unbind(1)
        return Pool(rows[: apart.layers], rows[apart.layers :], apart.order, apart.page_size)


def pairwise(seed: int) -> Iterator[Story]:
    """Stories in which every pair of values of two features occurs."""
    random, names = Random(seed), list(FEATURES)
    open_pairs = {
        ((a, x), (b, y)) for a, b in combinations(names, 2) for x, y in product(FEATURES[a], FEATURES[b])
    }  # fmt: skip
    while open_pairs:
        (a, x), (b, y) = min(open_pairs, key=repr)
        tries = [{n: random.choice(v) for n, v in FEATURES.items()} | {a: x, b: y} for _ in range(20)]
        best = max(tries, key=lambda story: len(open_pairs & set(combinations(story.items(), 2))))
        open_pairs -= set(combinations(best.items(), 2))
        yield best


class Engine:
    """A prefill engine: which tokens are where, by the KV that they have to have."""

    def __init__(self, pair: Pair, endpoint: PrefillEndpoint, room: Room) -> None:
        self.pair, self.endpoint, self.room = pair, endpoint, room
        self.size, self.layers = pair.plan.prefill.page_size, endpoint.pool.layers
        self.pages, self.given = list(pair.tables[room][0]), 0
        self.tensors = [*endpoint.pool.k, *endpoint.pool.v]
        #: by tensor, tokens first
        self.right = [tensor[self.pages].flatten(0, 1).clone() for tensor in self.tensors]
        self.queued: list[Forward] = []
        self.poison(0)

    def write(self, pages: list[int], first: int, upto: int, layers: int) -> None:
        """Put the KV of these tokens into the first so many layers."""
        for at, (tensor, right) in enumerate(zip(self.tensors, self.right, strict=True)):
            if at % self.layers < layers:
                for token in range(first, upto):
                    tensor[pages[token // self.size], token % self.size] = right[token]

    def poison(self, first: int) -> None:
        """Nothing is computed from this token on."""
        for tensor in self.tensors:
            for token in range(first, len(self.pages) * self.size):
                tensor[self.pages[token // self.size], token % self.size] = POISON

    def produce(self, first: int, upto: int, layers: int = 0) -> None:
        """A forward of these tokens is queued, and its event is given at once."""
        depth, upto_page = layers or self.layers, -(-upto // self.size)
        event = Forward(self.queued, first, upto, lambda first, upto: self.write(self.pages, first, upto, depth))
        more, self.given = self.pages[self.given : upto_page], max(self.given, upto_page)
        self.endpoint.produced(self.room, upto, event, pages=more, layers=layers or None)

    def take_back(self, upto: int, kept: int) -> None:
        """The withdrawn pages are free: others write there, and the room gets other ones."""
        for event in self.queued:
            event.keep(kept)
        self.poison(kept)
        keep = -(-upto // self.size)
        self.given = min(self.given, keep)
        self.pages[keep:] = [self.pair.free.pop() for _ in self.pages[keep:]]
        self.poison(kept)


def play(story: Story) -> None:
    """A forward, a withdrawal in the middle of it, and the forward that follows."""
    route, prefix, mapped = story["route"], story["prefix"], story["route"] == "mapped"
    settings = Settings(
        ring_bytes=1 << 20, slot_bytes=1 << 18, slots=1, route="pages" if mapped else route,
        layer_groups=story["groups"],
    )  # fmt: skip
    with StoryPair(
        layout(story["ranks"]), layout(1, page=story["page"]), chunk_tokens=CHUNK_TOKENS, settings=settings, pages=128,
        mapped=mapped, packed=story["packed"],
    ) as pair:  # fmt: skip
        room = pair.name(TOKENS, prefix=prefix)
        other = pair.open(TOKENS) if story["others"] else None
        pair.decodes[0].open(
            room, TOKENS, pair.tables[room][1], prefix=prefix, group=PREFILL_GROUP, layer_groups=story["groups"]
        )  # fmt: skip
        engines = [Engine(pair, endpoint, room) for endpoint in pair.prefills]
        for engine in engines:
            engine.endpoint.open(room, TOKENS, () if story["late"] else engine.pages)
            engine.given = 0 if story["late"] else len(engine.pages)
            if story["prefetch"]:
                engine.endpoint.prefetch(room)
            if story["early_aux"]:
                engine.endpoint.aux(room, b"aux")
        pair.pump(lambda: all(endpoint.opened_by_all(room) for endpoint in pair.prefills))
        kept = story["first"]
        for again in range(1 + story["again"]):
            preempt(pair, engines, room, story, kept, again)
            kept = min(story["first"], story["upto"])
        if story["end"] != "success":
            room, engines = give_up(pair, engines, room, story), []
            pair.produce(room)
        for engine in engines:
            engine.produce(kept, TOKENS)
            engine.endpoint.aux(room, b"aux")
        finish(pair, room, other, story)
        assert pair.causes(room) == {Cause.NONE}
        for engine in engines:  # the judge reads the pages that the room had first
            engine.write(list(pair.tables[room][0]), 0, TOKENS, engine.layers)
        pair.check(room, *([other] if other and story["other_end"] == "none" else []))


def give_up(pair: Pair, engines: list[Engine], room: Room, story: Story) -> Room:
    """Abort the room; a new one gets its released decode pages, and others write to its prefill pages."""
    ours = story["end"] == "prefill aborts"
    (pair.prefills if ours else pair.decodes)[0].abort(room)
    pair.pump(lambda: pair.over(room))
    # A rank that had sent all of its KV may have ended well before it heard of the abort.
    sent = {Cause.NONE} if story["first"] == TOKENS else set()
    assert pair.causes(room) <= {Cause.PREFILL_ABORTED if ours else Cause.DECODE_ABORTED, *sent}
    for engine in engines:
        engine.queued.clear()
        engine.poison(0)
    heir = pair.name(TOKENS)
    pair.tables[heir] = pair.tables[heir][0], pair.tables.pop(room)[1], TOKENS, 0
    pair.open_decode(heir)
    pair.open_prefill(heir)
    return heir


def preempt(pair: Pair, engines: list[Engine], room: Room, story: Story, computed: int, again: int) -> None:
    """Compute, begin some layers of more, and withdraw."""
    first, upto = story["first"], story["upto"]
    for engine in engines:
        if first:
            engine.produce(computed if again else 0, first)
        if story["layers"] and first < TOKENS:
            engine.produce(first, min(TOKENS, first + 2 * CHUNK_TOKENS), story["layers"])
    if until := story.get("until"):
        pair.pump(until)
    for _ in range(story["turns"]):
        pair.turn()
    for engine in engines:
        engine.endpoint.withdraw(room, upto)
    if story["end"] != "success" and story["again"] == again:
        return  # the room is given up while what was withdrawn may still be read
    pair.pump(lambda: all(engine.endpoint.withdrawn(room) for engine in engines))
    for engine in engines:
        engine.take_back(upto, min(first, upto))


def finish(pair: Pair, room: Room, other: Room | None, story: Story) -> None:
    """Until both rooms are over; the other one may be aborted meanwhile."""
    if other is not None and story["other_end"] == "aborted":
        pair.prefills[0].abort(other)
    elif other is not None:
        pair.produce(other)
    pair.pump(lambda: pair.over(room, *([other] if other else [])))


PLAIN = {name: values[0] for name, values in FEATURES.items()}


def test_event_of_former_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is kept for all that stays, computed or not."""
    story = PLAIN | {"first": 16, "upto": 32, "turns": 5}
    play(story)

    def keep_for_all(entry: RoomEntry, _upto: int, layers: int) -> None:
        entry.marks = [(story["upto"], layers, entry.marks[-1][2])] if entry.marks else []

    monkeypatch.setattr(RoomEntry, "forget_marks", keep_for_all)
    with pytest.raises(AssertionError, match="differs"):
        play(story)


def test_table_read_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy reads the pages as they are when it is prepared."""
    bound, bind = set[int](), HostCopy.bind

    def keep(copy: HostCopy, table: torch.Tensor, theirs: torch.Tensor, first: int, tokens: int) -> Launch:
        bound.add(first + tokens)
        return bind(copy, table.clone() if early else table, theirs, first, tokens)

    story = PLAIN | {"route": "mapped", "late": True, "others": False, "early_aux": False, "first": 20}
    story |= {"upto": 16, "until": lambda: TOKENS in bound}  # every copy is prepared, before its pages come
    monkeypatch.setattr(HostCopy, "bind", keep)
    early = False
    play(story)
    bound.clear()
    early = True
    with pytest.raises(AssertionError, match="differs"):
        play(story)


@pytest.mark.parametrize("seed", range(by_night(40, by_day=1)))
def test_every_pair_of_features_with_a_withdrawal_in_the_middle(seed: int) -> None:
    for story in pairwise(seed):
        try:
            play(story)
        except AssertionError as error:
            raise AssertionError(f"{story}: {error}") from error
