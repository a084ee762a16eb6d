"""Prefill slots: a prefill rank's slots, gathers and writes, as the rank asks for them.

A slot's content is tracked from the end of a gather to the end of the write that reads it, so that a slot that is used
twice, KV that is read before it is there, and pages that are given back too early are all seen here.  A write is seen
by its batches: each is posted once, through a link that is up, and until all of them have ended nothing is given back.
"""

from __future__ import annotations

from kvproto.protocol import effects as do
from kvproto.protocol.messages import Goodbye, Message, Refusal, Reset, StgNotify
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.check.config import CHUNK_TOKENS, Config
from kvproto.verify.check.node import SILENT, Watched, add, judge, page_ids, put
from kvproto.verify.check.prefill_local_steps import PrefillMoves
from kvproto.verify.sim.interpreter import Untaken, Write

#: the wire of a link that is down: it may be there, and nothing may be posted through it
DOWN = "down"


class PrefillSlots(PrefillMoves):
    """The surroundings of one prefill rank."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__(config, index)
        self.rank = PrefillRank(
            config.prefill_layout, self.member, group=self.own.group(index), chunk_tokens=CHUNK_TOKENS, incarnation=1,
            settings=config.settings,
        )  # fmt: skip
        self.rank.native_notify, self.rank.stands = config.native_notify, self.stands
        if config.opens_end(self.member):
            self.rank.placement = config.placement(config.prefill_layout, self.member)
        theirs, others = config.decode_layout, range(self.others.everyone if config.open_end else 0)
        #: by decode rank: what it tells of its pool
        self.placed = tuple(config.placement(theirs, self.others.member(d)) for d in others)
        self.interpreter = Watched(self.rank, self)
        #: what the transport says to the write that is being posted
        self.untaken: type[Untaken] | None = None

    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        """As every node.  Who answers a place that no link is bound to answers a stranger."""
        if isinstance(body, Reset) and place not in self.interpreter.link_at:
            self.seen.add("a stranger's heartbeat that is answered")
        if isinstance(body, Goodbye) and not body.quiet:
            self.seen.add("a goodbye while a write is in flight")
        if isinstance(body, Refusal) and self.others.one_name and place not in self.interpreter.link_at:
            self.seen.add("a name that is taken")
        if isinstance(body, StgNotify) and body.grant and self.rank.native_notify:
            self.seen.add("a part that its write has told is told by a message")
        super().deliver(place, epoch, room, body)

    def aux_row(self, room: int) -> bytes:
        """The row has no content; it is sent only when there is one."""
        k = self.names.place[room]
        given = any("aux" in group for group in self.words[: self.current.script[k]])
        judge("S5", given, f"the aux row of room {k} is sent before the engine gave it")
        return b""

    def connect(self, asked: do.Connect) -> None:
        v, life = self.current, self.rank.peers[asked.link].endpoint[0]
        self.current = v._replace(wiring=add(v.wiring, (asked.link - 1, asked.session, life)))

    def _judge_reading(self, asked: do.LaunchGather | Write) -> None:
        """Pages are read while they hold the KV and are this room's."""
        v, k, chunk = self.current, self.names.place[asked.room], asked.chunk
        self.judge_cut(k, chunk, asked.to.cut)
        needed = self.config.chunks if asked.to.cut.state else chunk // self.config.layer_groups + 1
        judge("S12", needed <= self.produced(v.script[k]), f"chunk {chunk} of room {k} is read before it is computed")
        judge("S4", not v.released[k], f"chunk {chunk} of room {k} is read after its pages were given back")

    def gather(self, asked: do.LaunchGather) -> None:
        """A gather begins, into a slot that nothing reads."""
        v, k = self.current, self.names.place[asked.room]
        self._judge_reading(asked)
        unposted = self.interpreter.unposted.values()
        prepared = (write.slot for write, _ in unposted if isinstance(write, do.PostWrite))
        busy = {*(job[3] for job in v.gathers), *(job[4] for job in v.posted), *prepared}
        judge("S12", asked.slot not in busy, f"slot {asked.slot} is gathered into while it is read")
        self.current = v._replace(gathers=add(v.gathers, (k, asked.chunk, asked.peer, asked.slot)))

    def prepare(self, write: do.PreparePages) -> int:
        return self.config.batches

    def at_once(self, write: do.PreparePages) -> bool:
        """In one step with what asks for it, unless the configuration says otherwise."""
        return not self.config.preparing

    def post(self, write: Write) -> type[Untaken] | None:
        """A batch is posted: once, and from a slot that holds its chunk."""
        if self.untaken is not None:
            return self.untaken
        v, k, chunk, d = self.current, self.names.place[write.room], write.chunk, write.peer
        wire = self.interpreter.wires[write.to.link]
        judge("S4", wire != DOWN, f"chunk {chunk} of room {k} is posted through a link that is down")
        batch = self.interpreter.unposted[write.room, chunk, d][1] - 1
        twice = any(job[:4] == (k, chunk, d, batch) for job in v.posted)
        judge("S2", not twice, f"chunk {chunk} of room {k} is posted twice")
        slot, where, tag = -1, -1, 0
        if isinstance(write, do.PostWrite):
            slot, where, tag = write.slot, write.offset, write.to.epoch if self.rank.native_notify else 0
            self.judge_cut(k, chunk, write.to.cut)
            judge("S12", v.slots[slot] == (k, chunk, d), f"slot {slot} does not hold chunk {chunk} of room {k}")
        else:
            self._judge_reading(write)
            at_end = any(block.at_end for block in write.to.part.blocks(write.to.cut))
            way = not at_end or self.config.opens_end(self.member)
            fits = way and write.pages == page_ids(write.to.cut.first)
            judge("S12", fits, f"chunk {chunk} of room {k} goes to another chunk's pages")
        self.outs.append(("post", self.names.peer(k, d), (k, chunk, where, tag, batch, int(wire))))
        self.current = v._replace(posted=add(v.posted, (k, chunk, d, batch, slot, False)))
        return None

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        self.note_outcome(self.names.place[news.room], news.cause)

    def hear_released(self, room: int) -> None:
        """The engine may use the pages again."""
        v, k = self.current, self.names.place[room]
        if v.script[k] <= 0:
            return  # the engine has not opened the room, so it has given no pages
        judge("S6", v.outcome[k] != SILENT, f"room {k} is given back before it has an outcome")
        judge("S6", not v.released[k], f"room {k} is given back twice")
        flying = [job for job in (*v.gathers, *v.posted) if job[0] == k]
        judge("S4", not flying, f"room {k} is given back while {len(flying)} gather(s) or write(s) of it are in flight")
        self.current = v._replace(released=put(v.released, k, True))
