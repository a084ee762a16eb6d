"""The proofs: all hold, every pair is walked, and what is taken out of a table breaks one by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("z3")

from kvproto import cli
from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Event
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol import ring as real_ring
from kvproto.protocol.routes import decode_routes
from kvproto.protocol.states import DGrant, DLink, DRoom, PLink, PRoom, PSend, PWrite
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.decode_grant import decode_grant
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.links import count_quiet, decode_link, prefill_link
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.tables.prefill_write import one_fewer, prefill_write
from kvproto.protocol.timing import Timing
from kvproto.verify.claims import CLAIMS
from kvproto.verify.claims import rooms as between_rooms
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.prove import ends, keys, lease, ring, rooms
from kvproto.verify.prove.page import page
from kvproto.verify.prove.proof import PairProof, TableProver
from kvproto.verify.prove.runs import TABLES as CLAIMS_OF
from kvproto.verify.prove.runs import TOGETHER, Proof, everything, prove
from kvproto.verify.prove.steps import Pair

ROOT = Path(__file__).parent.parent
#: states of a send before anything of its part is written
BEFORE = (
    "AWAIT_KV", "AWAIT_CREDIT", "AWAIT_GRANT", "AWAIT_WRITERS", "AWAIT_TURN", "AWAIT_WATERMARK", "AWAIT_SLOT",
    "GATHERING",
)  # fmt: skip
#: pairs that the assumptions leave nothing of, and why
NEVER = {
    # nothing is in doubt there
    "prefill_write": {f"{state} BatchSettled" for state in ("POSTING", "IN_FLIGHT", "ENDING")},
    # there is no link that could end, and the engine has not asked for the group, or has let go of it
    "decode_group": {
        *(f"{state} LinkEnded" for state in ("NEW", "UNLINKED")),
        *(f"{state} DisconnectCalled" for state in ("NEW", "LEFT")),
    },
    "ends": {
        # nobody has asked yet; a send that is over is another
        *(f"send NEW {event}" for event in ("StagingGranted", "PagesGranted", "ChunkAcked")),
        # nothing of this part was written
        *(f"send {state} ChunkAcked" for state in BEFORE),
        # pages are asked for when the ring was given up
        *(f"send {state} PagesGranted" for state in ("AWAIT_WATERMARK", "AWAIT_SLOT", "GATHERING", "WRITING")),
    },
}


@pytest.fixture(scope="module")
def proofs() -> list[Proof]:
    return prove(())


@pytest.mark.timeout(900)  # the fixture of all proofs: 200 s of a slow core, and two other processes beside it
def test_all_is_proved(proofs: list[Proof]) -> None:
    assert [failure for proof in proofs for failure in proof.failures] == []
    assert [proof.name for proof in proofs] == list(everything())
    assert all(proof.proved.get("invariant", 1) for proof in proofs)


def test_every_pair_of_every_table_was_walked_and_hardly_any_is_impossible(proofs: list[Proof]) -> None:
    by_name = {proof.name: proof for proof in proofs}
    assert [claims.table for claims in CLAIMS] == list(TABLES)
    for table in TABLES:
        assert by_name[table.name].pairs == len(table.pairs()) and by_name[table.name].ways >= len(table.pairs())
    assert {name: set(proof.impossible) for name, proof in by_name.items() if proof.impossible} == NEVER


def test_the_page_is_what_is_proved(proofs: list[Proof]) -> None:
    """But for how long it took."""
    seconds = re.compile(r"\| [0-9.]+ \|$", re.MULTILINE)
    written = (ROOT / "docs" / "prove.md").read_text()
    assert seconds.sub("|", written) == seconds.sub("|", page(proofs)), "run: kvproto prove --page docs/prove.md"


def claims_of(table: Any) -> Any:
    return next(claims for claims in CLAIMS if claims.table is table)


def proof_of(table: Any, state: Any, event: type[Event]) -> PairProof:
    prover = TableProver(claims_of(table), Timing())
    return prover.prove(next(pair for pair in prover.pairs if (pair.state, pair.event) == (state, event)))


def broken(found: PairProof) -> set[str]:
    return {failure.claim for failure in found.failures}


GUARDS = [
    ("decode_grant: FILLING PartArrived [last_staged]", "invariant: Every writer that asked, arrived"),
    ("decode_grant: FILLING StagingRequested [not_a_writer]", "S1: A region is told while it is held"),
    ("prefill_write: POSTING BatchReady [lease_holds]", "S4: A batch is posted only while"),
    ("decode_room: OPEN ChunkLanded [last_chunk]", "S5: Success is announced when every chunk"),
    ("prefill_link: UP WatermarkSeen [higher]", "S7: Within an epoch the watermark"),
    ("prefill_room: FAILED EngineOpened [unowned]", "S6: The engine is told one outcome"),
]


@pytest.mark.parametrize(("name", "claim"), GUARDS, ids=[name for name, _ in GUARDS])
def test_a_guard_that_is_taken_out_breaks_a_proof_by_name(name: str, claim: str) -> None:
    table, state, event, guard = re.fullmatch(r"(\w+): (\w+) (\w+) \[(\w+)\]", name).groups()  # type: ignore[union-attr]
    claims = CLAIMS_OF[table]
    rows = [
        row for row in claims.table.rows
        if (row.source.name, row.event.__name__) == (state, event) and row.when and row.when.__name__ == guard
    ]  # fmt: skip
    (row,) = rows
    with TablePatch() as bench:
        bench.change(claims.table, rows, when=None if row.verb == "row" else lambda *_: False)
        pair = Pair(row.source, row.event)
        found = TableProver(claims, Timing()).prove(pair).failures or TOGETHER[table](pair).failures
    assert any(f"{failure.claim}: {failure.text}".startswith(claim) for failure in found), found


# ------------------------------------------------------------------- what was wrong, and what the proofs said
def test_a_batch_that_landed_after_the_last_post_is_not_forgotten() -> None:
    """One of two posted batches lands, and one finds no room; the lease ends: nothing has lapsed."""
    machine, at = Machine(prefill_write, Timing()), (7, 0, 0)
    value, said = machine.initial, []
    steps: list[tuple[Event, float]] = [
        (ev.PagesBegun(*at, ev.Target(), b"\0\0\0\0", 10.0), 0.0), (ev.BatchReady(*at, last=False), 0.0),
        (ev.BatchReady(*at, last=True), 0.0), (ev.BatchCompleted(*at), 0.0), (ev.BatchDeferred(*at), 0.0),
        (ev.BatchReady(*at, last=True), 11.0),
    ]  # fmt: skip
    for event, now in steps:
        value, effects = machine.step(value, event, now)
        said += [effect for effect in effects if isinstance(effect, ev.WriteLapsed | ev.WriteFailed)]
    assert value.state is PWrite.FAILED
    assert said == [ev.WriteFailed(*at, settled=True)], "its pages would be written twice"


def test_the_proof_misses_a_batch_that_is_forgotten() -> None:
    with TablePatch() as bench:
        row = bench.rows(prefill_write, PWrite.IN_FLIGHT, ev.BatchCompleted, None)
        bench.change(prefill_write, row, let=one_fewer)
        found = proof_of(prefill_write, PWrite.IN_FLIGHT, ev.BatchCompleted)
    assert broken(found) == {"invariant"}
    (failure,) = found.failures
    assert failure.text == "It knows whether bytes have come to the peer, and none of its batches has failed."
    assert [line.split()[0] for line in failure.story] == ["state", "witness", "event", "row", "then"]


@pytest.mark.parametrize("state", [DGrant.AWAIT_SPACE, DGrant.FILLING, DGrant.FILLING_PAGES])
@pytest.mark.parametrize("asks", [msg.StagingReq, msg.PagesReq])
def test_a_rank_of_the_group_that_is_no_writer_has_no_say_in_a_chunk(state: DGrant, asks: type[Any]) -> None:
    from test_core_scenarios import ROOM, forward, grant, hear, world

    at = world(4, 1, heads=2)
    terms = at.decode(0).peers[at.decode(0).link_of[1, 0]].terms
    assert terms is not None and terms.writes == 0b0101
    while state is DGrant.AWAIT_SPACE and at.decode(0).ring.reserve(at.decode(0).ring.size) is not None:
        pass
    at.open_all(ROOM, 8)
    forward(at)
    at.mail.clear()
    for writer in (0, 2):  # a region is reserved when both have asked, and each may ask for the pages
        asked = msg.PagesReq(0) if state is DGrant.FILLING_PAGES else msg.StagingReq(0)
        hear(at, "D", 0, asked, sender=writer)
    assert grant(at) is state
    before = at.decode(0).grants[ROOM][0]
    said = hear(at, "D", 0, asks(0), sender=1)
    assert [type(each).__name__ for each in said] == ["Report"] and at.decode(0).grants[ROOM][0] == before


# ----------------------------------------------------------------------------------------- ring, lease, ends
def test_a_ring_that_lets_write_too_early_breaks_a_lemma_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    early = lambda round_, end, mark: round_ == 0 or round_ - 1 <= mark[0]  # noqa: E731
    monkeypatch.setattr(ring, "usable", early)
    assert [found.pair for found in ring.prove() if found.failures] == ["overlap"]


def test_a_ring_that_starts_no_new_round_breaks_lemmas(monkeypatch: pytest.MonkeyPatch) -> None:
    def reserve(self: Any, size: Any) -> Any:
        region = real_ring.RingRegion(1, self.round, self.head, self.head + size)
        self.head = region.end
        return region

    monkeypatch.setattr(real_ring.Ring, "reserve", reserve)
    assert "order" in [found.pair for found in ring.prove() if found.failures]


def test_a_lease_overruns_where_answers_say_nothing_of_their_request() -> None:
    """`lost-link` is no theorem without it."""
    questions = [ring.Question([*each.known[:-2], each.known[-1]], each.follows) for each in lease.lost_link()]
    (found,) = ring.prove("lease", (("S4", "lost-link", lambda: iter(questions)),))
    assert len(found.failures) == len(questions) >= 8


def test_a_lease_overruns_that_runs_from_the_latest_request() -> None:
    """An answer to an older one may come after that, from a link that is lost by now."""

    def latest(v: Any, e: Any, now: float) -> Any:
        return replace(v, pages=e.pages, lease=v.asked + e.lease)

    with TablePatch() as bench:
        row = bench.rows(prefill_send, PSend.AWAIT_PAGES, ev.PagesGranted, None)  # where its KV is not there
        bench.change(prefill_send, row, let=latest)
        found = {each.pair: len(each.failures) for each in lease.proofs()}
    assert found["lost-link"] > 0


@pytest.mark.parametrize(("row", "says"), [
    ((decode_grant, DGrant.FILLING, ev.StagingRequested, None), lambda v, e: do.SendGrant(
        e.room, 1 << e.peer, e.chunk, v.grant, v.offset, v.round, v.end)),
    ((decode_grant, DGrant.FILLING_PAGES, ev.PagesRequested, None),
     lambda v, e: do.TransmitPages(e.link, e.epoch, e.room, e.chunk, v.cut)),
])  # fmt: skip
def test_it_is_missed_that_an_answer_repeats_what_was_asked(row: Any, says: Any) -> None:
    table, state, event, guard = row
    with TablePatch() as bench:
        bench.change(table, bench.rows(table, state, event, guard), do=(says,))
        found = proof_of(table, state, event)
    assert [failure.text for failure in found.failures] == [
        "An answer repeats its request's time; an answer out of the queue says so and goes to all requesters."
    ]


def test_the_time_after_a_loss_is_lease_and_write() -> None:
    timing = Timing()
    calls = sum(timing.return_.after(times) for times in range(timing.return_.tries))
    assert calls >= timing.lease.period + timing.write.period


def test_between_the_ends_it_is_missed_that_a_region_is_given_up() -> None:
    """A rank that asked for pages may not be told a region as well: S1 of the two ends together."""
    with TablePatch() as bench:
        row = bench.rows(prefill_send, PSend.AWAIT_PAGES, ev.PagesGranted)
        bench.change(prefill_send, row, target=PSend.AWAIT_GRANT)
        prover = ends.EndsProver()
        pair = next(each for each in prover.provers["send"].pairs
                    if each.state.name == "AWAIT_PAGES" and each.event is ev.PagesGranted)  # fmt: skip
        found = prover.pair("send", pair)
    assert any("does not go back to the ring" in failure.text for failure in found.failures)


# ----------------------------------------------------------------------------------------------------------- keys
def test_an_event_that_is_not_about_its_message_breaks_a_lemma() -> None:
    def first(heard: Any) -> ev.ChunkRequested:
        return ev.ChunkRequested(heard.room, 0, heard.peer, pages=False, asked=heard.body.asked)

    with TablePatch() as bench:
        bench.reroute(decode_routes, bench.routes(decode_routes, msg.StagingReq)[-1:], to=(first,))
        (found,) = [each for each in keys.proofs() if each.failures]
    assert found.pair == "events"


def test_keys_that_do_not_tell_sends_apart_break_a_lemma() -> None:
    question = keys.told_apart("sends", lambda event: (event.room, event.chunk << 8 | event.peer))
    (found,) = ring.prove("keys", (("S9", "machines", lambda: iter((question,))),))
    assert found.failures


# ---------------------------------------------------------------------------------------------- between the rooms
def room_proof(side: str, state: Any, event: type[Event]) -> PairProof:
    prover = rooms.RoomsProver()
    pairs = prover.provers[side].pairs
    return prover.pair(side, next(pair for pair in pairs if (pair.state, pair.event) == (state, event)))


def test_a_room_that_does_not_end_with_its_link_breaks_its_own_word_and_between_the_rooms_safety() -> None:
    """A decode rank that loses a link counts its peer as quiet after a while; the room ends with it."""
    with TablePatch() as bench:
        row = bench.rows(prefill_room, PRoom.OPEN, ev.LinkWentDown, "known")
        bench.change(prefill_room, row, when=lambda _value, _event, _now: False)
        alone = proof_of(prefill_room, PRoom.OPEN, ev.LinkWentDown)
        found = room_proof(rooms.PREFILL, PRoom.OPEN, ev.LinkWentDown)
    assert broken(alone) == {"S9"} and broken(found) == {"invariant", "S4"}


def test_a_failed_room_that_is_opened_once_more_breaks_its_own_word_and_what_is_so_between_the_rooms() -> None:
    """A link comes up while a room drains: who would be told OPEN begins a room that is being given back."""
    with TablePatch() as bench:
        tell_open = bench.rows(decode_room, DRoom.AWAIT_PEERS, ev.LinkCameUp)[0].do
        bench.change(decode_room, bench.rows(decode_room, DRoom.DRAINING, ev.LinkCameUp), do=tell_open)
        alone = proof_of(decode_room, DRoom.DRAINING, ev.LinkCameUp)
        found = room_proof(rooms.DECODE, DRoom.DRAINING, ev.LinkCameUp)
    assert broken(alone) == {"L1"} and broken(found) == {"invariant"}


def test_a_link_that_is_lost_in_silence_is_missed() -> None:
    with TablePatch() as bench:
        bench.change(prefill_link, bench.rows(prefill_link, PLink.UP, ev.QueueOverflowed), do=())
        assert broken(proof_of(prefill_link, PLink.UP, ev.QueueOverflowed)) == {"S4", "L1"}


def test_who_may_be_heard_is_not_told_to_be_quiet() -> None:
    with TablePatch() as bench:
        bench.change(decode_link, bench.rows(decode_link, DLink.UP, ev.QuietAsked), verb="row", do=(count_quiet,))
        found = proof_of(decode_link, DLink.UP, ev.QuietAsked)
    said = [each.text for each in found.failures]
    assert "It is told while the link is down: what was said by it is not heard any more." in said


def test_a_window_that_is_opened_twice_is_missed() -> None:
    with TablePatch() as bench:
        row = bench.rows(prefill_room, PRoom.OPEN, ev.SendFinished, "window_slides")
        end_one = bench.rows(prefill_room, PRoom.OPEN, ev.SendFinished, None)[0].let
        bench.change(prefill_room, row, let=end_one)
        assert "S2" in broken(proof_of(prefill_room, PRoom.OPEN, ev.SendFinished))


@pytest.mark.parametrize(("table", "state", "event"), [
    (decode_room, DRoom.OPEN, ev.AuxLanded), (decode_room, DRoom.AWAIT_PEERS, ev.PeerReady),
    (prefill_room, PRoom.OPEN, ev.PeerOpened), (prefill_room, PRoom.AWAIT_PEERS, ev.PeerOpened),
])  # fmt: skip
def test_a_room_that_is_given_its_time_for_what_does_not_get_on_is_missed(table: Any, state: Any, event: Any) -> None:
    with TablePatch() as bench:
        bench.change(table, bench.rows(table, state, event, None), again=True)
        prover = TableProver(claims_of(table), Timing())
        assert prover.fails(next(pair for pair in prover.pairs if (pair.state, pair.event) == (state, event))) == "L1"


def test_a_slot_that_is_kept_while_its_send_waits_is_missed() -> None:
    with TablePatch() as bench:
        bench.change(prefill_send, bench.rows(prefill_send, PSend.GATHERING, ev.Gathered, None), do=())
        said = [each.text for each in proof_of(prefill_send, PSend.GATHERING, ev.Gathered).failures]
    assert any("no send waits for the ring" in text for text in said)


#: what is assumed between the rooms, and a pair that leans on it
LEANS: dict[Any, tuple[str, Any, type[Event]]] = {
    between_rooms.opens_with_its_ranks: (rooms.DECODE, DRoom.UNKNOWN, ev.RoomOpened),
    between_rooms.is_opened_once: (rooms.DECODE, DRoom.UNKNOWN, ev.RoomAnnounced),
    between_rooms.an_open_comes_in_its_epoch: (rooms.PREFILL, PRoom.UNKNOWN, ev.PeerOpened),
    between_rooms.who_opens_is_a_party: (rooms.PREFILL, PRoom.AWAIT_ENGINE, ev.PeerOpened),
    between_rooms.speaks_for_a_group: (rooms.PREFILL, PRoom.AWAIT_ENGINE, ev.PeerOpened),
    between_rooms.no_open_comes_after_the_end: (rooms.PREFILL, PRoom.UNKNOWN, ev.PeerOpened),
    between_rooms.drained_comes_if_it_was_said: (rooms.DECODE, DRoom.DRAINING, ev.PeerDrained),
    between_rooms.is_quiet_while_the_link_is_down: (rooms.DECODE, DRoom.DRAINING, ev.PeerQuiet),
    between_rooms.a_link_comes_up_anew: (rooms.DECODE, DRoom.AWAIT_PEERS, ev.LinkCameUp),
    between_rooms.confirms_by_a_link_that_is_up: (rooms.DECODE, DRoom.AWAIT_PEERS, ev.PeerReady),
    between_rooms.landed_comes_if_it_was_told: (rooms.DECODE, DRoom.OPEN, ev.ChunkLanded),
}  # fmt: skip


@pytest.mark.parametrize("assumed", between_rooms.ASSUMED, ids=lambda test: test.__name__)
def test_each_thing_that_is_assumed_between_the_rooms_is_needed(assumed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(each for each in between_rooms.ASSUMED if each is not assumed)
    monkeypatch.setattr(between_rooms, "ASSUMED", others)
    assert room_proof(*LEANS[assumed]).failures


# -------------------------------------------------------------------------------------------- the claims, alive
def test_claims_are_true_of_values_as_they_run() -> None:
    """The same functions, on numbers: a grant's life, and a value that no life has."""
    claims = claims_of(decode_grant)
    machine, value, seen = Machine(decode_grant, Timing()), None, claims.ghost()
    value = machine.initial
    from kvproto.verify.framework.claims import Step

    events = [
        ev.StagingRequested(7, 0, 0, 0b11), ev.StagingRequested(7, 0, 1, 0b11), ev.SpaceReserved(7, 0, 1, 0, 0, 64),
        ev.PartArrived(7, 0, 0, 1), ev.PartArrived(7, 0, 1, 1), ev.Scattered(7, 0),
    ]  # fmt: skip
    effects: tuple[Any, ...] = ()
    for event in events:
        new, effects = machine.step(value, event, 0.0)
        seen = claims.follow(Step(value, event, new, effects, 0.0, seen))
        value = new
        assert claims.broken(value, seen) == []
    assert value.state is DGrant.FREED and seen.region == 0 and isinstance(effects[0], do.FreeSpace)
    assert claims.broken(replace(value, state=DGrant.FILLING), seen) != []


# ------------------------------------------------------------------------------------------------ the command
def test_the_command_tells_what_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prove", "prefill_write"]) == 0
    said = capsys.readouterr().out
    claims = ", ".join(rf"{claim} \d+" for claim in ("L1", "S1", "S2", "S4", "S6", "S9", "invariant"))
    line = rf"prefill_write +40 pairs +\d+ ways +\d+\.\d s +proved +\({claims}\)"
    assert re.match(line, said)
    assert cli.main(["prove", "ring", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["name"] == "ring" and told["failures"] == []


def test_the_command_tells_a_story_of_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with TablePatch() as bench:
        bench.change(prefill_write, bench.rows(prefill_write, PWrite.IN_FLIGHT, ev.BatchCompleted, None), let=one_fewer)
        from kvproto.verify.prove import runs

        runs._prover.cache_clear()
        assert cli.main(["prove", "prefill_write"]) == 1
    runs._prover.cache_clear()
    said = capsys.readouterr().out
    assert said.startswith("prefill_write: IN_FLIGHT BatchCompleted: the invariant is not proved: It knows whether")
    assert "\n  row     IN_FLIGHT --BatchCompleted--> IN_FLIGHT" in said and "1 NOT PROVED" in said
