"""Mutants that take one link's, epoch's or group's things for another's (most beside the catalogue)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import PagesReq, Watermark
from kvproto.protocol.routes import ChunkIs, HeardMessage, SenderIs, decode_routes, first_asked
from kvproto.protocol.states import DLink, PLink, PRoom
from kvproto.rank.base import Rank, bits
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.prefill_links import PrefillLinks
from kvproto.rank.prefill_queues import PrefillQueues
from kvproto.verify.check.mutations.registry import DLINKS, PLINKS, PROOMS, links, mutation
from kvproto.verify.framework.table_patching import TablePatch


def _hear(b: TablePatch, side: type[Rank] = PrefillRank, *, any_epoch: bool = False, any_state: bool = False) -> None:
    """A rank takes messages of another epoch, or of a link that is down, for current."""
    facts = side.facts

    def lenient(rank: Any, heard: HeardMessage) -> Any:
        value, said = rank.links.get(heard.link), heard.epoch
        up = rank._up_state  # noqa: SLF001
        if value is not None and (any_epoch or said == value.epoch) and (any_state or value.state is up):
            heard.epoch, rank._up_state = value.epoch, value.state  # noqa: SLF001
        found = facts(rank, heard)
        heard.epoch, rank._up_state = said, up  # noqa: SLF001
        return found

    b.patch(side, "facts", lenient)


@mutation("epoch-unread", "unordered-link", "S4")
def epoch_unread(b: TablePatch) -> None:
    """A prefill rank hears what was said in an older epoch of the link (beside the catalogue)."""
    _hear(b, any_epoch=True)


@mutation("epoch-unread-by-decode", "close-unordered-link", "S1")
def epoch_unread_by_decode(b: TablePatch) -> None:
    """A decode rank hears what was said in an older epoch of the link (beside the catalogue)."""
    _hear(b, DecodeRank, any_epoch=True)


@mutation("heard-while-down", "groups-in-link", "S10")
def heard_while_down(b: TablePatch) -> None:
    """A prefill rank hears what comes by a link that is down (beside the catalogue)."""
    _hear(b, any_state=True)


@mutation("old-session", "groups-in-link", "S4", "S9")
def old_session(b: TablePatch) -> None:
    """A decode rank that has lost its link calls with the session that it had (beside the catalogue)."""

    def again(v: Any, e: Any, now: float) -> Any:
        return links.DLinkValue(v.state, session=v.session, address=v.address, leaving=v.leaving)

    rows = [row for row in DLINKS.rows if row.let is links.call_again]
    b.change(DLINKS, rows, let=again)


@mutation("former-life-waits", "groups-in-link", "S8")
def former_life_waits(b: TablePatch) -> None:
    """A link that comes back keeps sends that waited for the old one's watermark (beside the catalogue)."""

    def connect(rank: Any, effect: do.Connect) -> None:
        rank.watch.setdefault(effect.link, [])
        PrefillLinks._connect(rank, effect)  # noqa: SLF001

    b.patch(PrefillQueues, "_connect", connect)


@mutation("others-writes-count", "groups-out-link", "L1")
def others_writes_count(b: TablePatch) -> None:
    """A call is put off by writes to another group's rank of the same index (beside the catalogue)."""

    def writes_to(rank: Any, link: int) -> bool:
        return any(key & 0xFFFF == rank.peers[link].rank for _, key in rank.writes)

    b.patch(Rank, "_writes_to", writes_to)


@mutation("others-rooms-end", "groups-in-link", "S9")
def others_rooms_end(b: TablePatch) -> None:
    """A link that is lost ends the rooms of all groups (beside the catalogue)."""

    def rooms_of(rank: Any, link: int, rooms: dict[int, Any]) -> list[int]:
        return [key for key, value in rooms.items() if value.terms is not None]

    b.patch(Rank, "_rooms_of", rooms_of)


@mutation("others-group-is-left", "groups-in-leave", "S9")
def others_group_is_left(b: TablePatch) -> None:
    """An engine that lets go of one group lets go of all (beside the catalogue)."""

    def leave(rank: Any, group: int, now: float) -> list[Any]:
        return [effect for link in tuple(rank.links) for effect in rank.handle(ev.DisconnectAsked(link), now)]

    b.patch(DecodeRank, "leave", leave)


@mutation("rank-is-enough", "groups-cross", "S9", "S10", "L1", "L3")
def rank_is_enough(b: TablePatch) -> None:
    """A room's peer is looked up by its rank, in whichever group (beside the catalogue)."""

    def link_to(rank: Any, room: int, peer: int) -> int:
        return next((link for (_, index), link in rank.link_of.items() if index == peer), 0)

    b.patch(Rank, "link_to", link_to)


@mutation("anybody-is-party", "groups-out-claim", "S1", "S6", "S9", "S10", "S12", "L1", "L3")
def anybody_is_party(b: TablePatch) -> None:
    """Every rank that speaks of a room is taken for the group that has it (beside the catalogue)."""
    fact = PrefillLinks._sender_fact  # noqa: SLF001

    def party(rank: Any, heard: HeardMessage, peer: Any) -> int:
        found = fact(rank, heard, peer)
        return int(SenderIs.PARTY) if heard.room and found != SenderIs.UNCLAIMED else found

    b.patch(PrefillLinks, "_sender_fact", party)


@mutation("lease-unread", "groups-out-lease", "S12")
def lease_unread(b: TablePatch) -> None:
    """Ranks whose leases differ agree all the same (beside the catalogue)."""
    misfit = Rank.misfit

    def any_lease(rank: Any, said: Any, chunk_tokens: int) -> Any:
        return misfit(rank, replace(said, lease=rank.lease), chunk_tokens)

    b.patch(Rank, "misfit", any_lease)


@mutation("refused-by-digest", "newer-build", "L1", "S9")
def refused_by_digest(b: TablePatch) -> None:
    """A rank refuses a peer whose tables are not its own (beside the catalogue)."""
    misfit = Rank.misfit

    def same_tables(rank: Any, said: Any, chunk_tokens: int) -> Any:
        other = said.digest != rank.build.digest
        return ("the builds differ", None) if other else misfit(rank, said, chunk_tokens)

    b.patch(Rank, "misfit", same_tables)


@mutation("no-common-version", "other-version", "S12")
def no_common_version(b: TablePatch) -> None:
    """Ranks that speak no common wire version agree all the same (beside the catalogue)."""
    b.patch(Rank, "unlike", lambda _rank, _theirs: "")


@mutation("pages-asked-staged", "permit-late", "L3")
def pages_asked_staged(b: TablePatch) -> None:
    """A rank that asks for the pages of a chunk gets a region (beside the catalogue)."""
    granted = b.routes(decode_routes, PagesReq, ChunkIs.GRANTED)
    first = [route for route in b.routes(decode_routes, PagesReq) if route.to and route not in granted]
    b.reroute(decode_routes, first, to=(first_asked,))


@mutation("quiet-told-once", "death-two", "L1", "L2")
def quiet_told_once(b: TablePatch) -> None:
    """Only one of a dead rank's rooms is told that nothing can land any more (beside the catalogue)."""

    def raise_quiet(rank: Any, effect: do.RaisePeerQuiet) -> None:
        peer = rank.peers[effect.link].rank
        rank._queue += [ev.PeerQuiet(room, peer) for room in rank._rooms_of(effect.link, rank.rooms)[:1]]  # noqa: SLF001

    b.patch(DecodeRank, "_raise_quiet", raise_quiet)


@mutation("watermark-to-one", "heads-of-line", "L3")
def watermark_to_one(b: TablePatch) -> None:
    """Only one of the writers that wait for the watermark is told (beside the catalogue)."""

    def send(rank: Any, effect: do.SendWatermark) -> None:
        for peer in bits(effect.peers)[:1]:
            rank._transmit_to(rank.link_to(effect.room, peer), 0, Watermark(*rank.ring.mark))  # noqa: SLF001

    b.patch(DecodeRank, "_send_watermark", send)


@mutation("usable-untold", "groups-in", "L3")
def usable_untold(b: TablePatch) -> None:
    """A region that becomes usable is told to nobody (beside the catalogue)."""

    def free(rank: Any, effect: do.FreeSpace) -> None:
        del rank.chunk_of[effect.grant]
        rank.ring.free(effect.grant)
        rank._serve()  # noqa: SLF001

    b.patch(DecodeRank, "_free", free)


@mutation("dead-address-displaces", "address", "S9")
def dead_address_displaces(b: TablePatch) -> None:
    """A link that is up is dropped for an address that the engine names, before a rank answers there."""
    b.drop(DLINKS, b.rows(DLINKS, DLink.UP, ev.CallAsked, None))
    b.change(DLINKS, b.rows(DLINKS, DLink.UP, ev.CallAsked, "anew"), when=None)


@mutation("dead-address-moves-call", "timed-address-link", "L1")
def dead_address_moves_call(b: TablePatch) -> None:
    """A link that is down is called only where the engine says last (beside the catalogue)."""
    called = (DLink.AWAIT_WELCOME, DLink.AWAIT_RETURN)
    moved = b.rows(DLINKS, called, ev.CallAsked, None)
    b.change(DLINKS, moved, let=links.move, do=(links.dial, links.say_hello))


@mutation("second-life-wins", "timed-one-name", "S9")
def second_life_wins(b: TablePatch) -> None:
    """The last caller of two live instances of one name has the link: they take it in turns."""
    b.drop(PLINKS, b.rows(PLINKS, PLink.UP, ev.HelloReceived, "other_life"))


@mutation("any-caller-unbound", "groups-out-anyone", "S9", "L1", "L3")
def any_caller_unbound(b: TablePatch) -> None:
    """A room for the first group that asks is bound to none, and lets a second in (beside the catalogue)."""
    for row in b.rows(PROOMS, PRoom.AWAIT_PEERS, ev.PeerOpened):

        def unbound(v: Any, e: Any, now: float, let: Any = row.let) -> Any:
            found = let(v, e, now)
            return replace(found, facts=replace(found.facts, claim=v.facts.claim))

        b.change(PROOMS, [row], let=unbound)
