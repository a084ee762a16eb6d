"""A room goes to whom its prefill engine opened it for, whoever asks first, in whatever order.

One that the engine opened for anyone goes to the first that asks.

Two who may not have it: another group, which shows the right secret or none; and somebody in the name of the right
group who does not know the secret.  They open the room and give it up as often as they like, before and after the
engine.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from support.night import by_night
from support.stories import layout
from test_foreign_groups import MINE, OTHER, ROOM, TOKENS, answers, kept, prefill, say

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.errors import ArgumentError
from kvproto.fsm.vocabulary import Effect
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.routes import RIVALRY, SenderIs, prefill_routes
from kvproto.protocol.states import Cause, PRoom
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.rank.prefill import PrefillRank
from kvproto.room import Room
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise, tokens_of
from kvproto.verify.trace.stories import load, replay, save

SECRET = b"given out with the request"
WORDS = ("open", "abort", "owner", "engine")
#: words of a story before the owner's last, and how many stories of so many there are in which the engine speaks once
LENGTH, STORIES = by_night((5, 405), by_day=(4, 108))
#: the stranger's group, and what it shows
STRANGERS = {"another group": (OTHER, b""), "another group that knows": (OTHER, SECRET), "no secret": (MINE, b"")}


def spoken(words: tuple[str, ...], group: int, shown: bytes) -> tuple[PrefillRank, dict[int, int], list[Effect]]:
    """A prefill rank that has heard all of this, and what it said and did."""
    rank, links = prefill()
    done: list[Effect] = []
    for word in words:
        if word == "engine":  # what the loop told nobody before
            done = [each for each in done if not isinstance(each, do.AnnounceReleased)]
            done += rank.handle(ev.EngineOpened(ROOM, TOKENS, ev.Claim(MINE, SECRET)), 0.0)
        elif word == "owner":
            done += say(rank, links[MINE], msg.Open(TOKENS, 0, SECRET))
        else:
            body = msg.Open(TOKENS, 0, shown) if word == "open" else msg.Abort(Cause.DECODE_ABORTED, shown)
            done += say(rank, links[group], body)
    return rank, links, done


@pytest.mark.parametrize("stranger", STRANGERS)
def test_in_whatever_order_the_owner_has_it(stranger: str) -> None:
    group, shown = STRANGERS[stranger]
    stories = [words for words in product(WORDS, repeat=LENGTH) if words.count("engine") == 1]
    assert len(stories) == STORIES
    for words in stories:
        rank, links, done = spoken((*words, "owner"), group, shown)  # an OPEN that was not answered is repeated
        value = rank.value_of(ROOM)
        assert value.state is PRoom.AWAIT_FORWARD and value.terms.group == MINE, words
        assert value.facts.claim == ev.Claim(MINE, SECRET), words
        told = [each for each in done if isinstance(each, do.AnnounceOutcome | do.AnnounceReleased)]
        assert told == [], words
        work = rank.handle(ev.TokensProduced(ROOM, TOKENS), 0.0)
        assert {link for link, _ in answers(work)} == {links[MINE]}, words
        before = kept(rank)
        late = say(rank, links[group], msg.Open(TOKENS, 0, shown)) + say(
            rank, links[group], msg.Abort(Cause.DECODE_ABORTED, shown)
        )  # fmt: skip
        assert kept(rank) == before, words
        assert [body for _, body in answers(late)] == [msg.Drained(Cause.NOT_ENTITLED)] * 2, words


def test_who_was_first_and_is_not_meant_is_told_when_the_engine_has_spoken() -> None:
    _, links, done = spoken(("open", "engine"), OTHER, b"")
    assert answers(done) == [(links[OTHER], msg.Opened()), (links[OTHER], msg.Drained(Cause.NOT_ENTITLED))]


def test_of_rivals_the_second_waits_for_the_engine() -> None:
    rank, links, done = spoken(("open", "owner", "owner"), OTHER, b"")
    assert answers(done) == [(links[OTHER], msg.Opened())]
    assert rank.counts["rooms that are claimed twice"] == 2
    rank, links, done = spoken(("abort", "owner"), OTHER, b"")
    assert rank.counts["rooms that are claimed twice"] == 1, "a room that another one has given up is not the engine's"
    assert (links[MINE], msg.Drained(Cause.NOT_ENTITLED)) not in answers(done)


def test_the_engine_s_word_planted() -> None:
    """Without the row the room stays with who was first."""
    with TablePatch() as bench:
        bench.drop(prefill_room, bench.rows(prefill_room, PRoom.AWAIT_ENGINE, ev.EngineOpened, "claimed_by_another"))
        rank, _, _ = spoken(("open", "engine"), OTHER, b"")
        assert rank.value_of(ROOM).terms.group == OTHER


def test_an_abort_before_the_engine_planted() -> None:
    with TablePatch() as bench:
        rows = bench.rows(prefill_room, PRoom.ABORTED, ev.EngineOpened, "ended_for_another")
        bench.drop(prefill_room, rows)
        _, _, done = spoken(("abort", "engine"), OTHER, b"")
        assert any(isinstance(each, do.AnnounceOutcome) for each in done), "a stranger ends a room of the future"


def test_rivals_planted() -> None:
    with TablePatch() as bench:
        rivalry = [each for each in bench.routes(prefill_routes, msg.Open, SenderIs.RIVAL) if each.why == RIVALRY]
        bench.close(prefill_routes, rivalry)
        _, links, done = spoken(("open", "owner"), OTHER, b"")
        assert (links[MINE], msg.Drained(Cause.NOT_ENTITLED)) in answers(done), "the owner gives the room up"


# --------------------------------------------------------------------------------- a room for the first that asks
ANYONE = ev.Claim(0, SECRET)
ASKS: dict[str, msg.Message] = {"open": msg.Open(TOKENS, 0, SECRET), "announce": msg.Announce(TOKENS, SECRET)}
ASKS["abort"] = msg.Abort(Cause.DECODE_ABORTED, SECRET)
#: who says what: the two groups, and the engine; and how many words a story has before both groups ask once more
SAID = [("engine", 0), *product(ASKS, (MINE, OTHER))]
ASKED = by_night(4, by_day=3)


def asked(words: tuple[tuple[str, int], ...]) -> tuple[PrefillRank, dict[int, list[msg.Message]], list[Effect]]:
    """A prefill rank that has heard all of this, what each group was told, and all effects."""
    rank, links = prefill()
    told: dict[int, list[msg.Message]] = {MINE: [], OTHER: []}
    done: list[Effect] = []
    for what, group in words:
        engine = what == "engine"
        effects = (
            rank.handle(ev.EngineOpened(ROOM, TOKENS, ANYONE), 0.0) if engine else say(rank, links[group], ASKS[what])
        )
        done += effects
        for link, body in answers(effects):
            told[next(each for each, at in links.items() if at == link)].append(body)
    return rank, told, done


def test_in_whatever_order_a_room_for_anyone_is_the_first_group_s_that_asks() -> None:
    stories = [words for words in product(SAID, repeat=ASKED) if words.count(("engine", 0)) == 1]
    for words in stories:
        first = next(group for what, group in words if what != "engine")
        second = MINE + OTHER - first
        gave_up = ("abort", first) in words
        rank, told, done = asked((*words, ("open", second), ("open", first)))
        assert msg.Opened() not in told[second] and msg.Drained(Cause.NOT_ENTITLED) in told[second], words
        assert msg.Drained(Cause.NOT_ENTITLED) not in told[first], words
        assert rank.value_of(ROOM).facts.claim == ev.Claim(first, SECRET), words
        ended = [each.cause for each in done if isinstance(each, do.AnnounceOutcome)]
        assert ended == [Cause.DECODE_ABORTED] * gave_up, words
        assert gave_up or told[first].count(msg.Opened()), words


def test_a_room_for_anyone_is_not_theirs_that_do_not_show_its_secret() -> None:
    for body in (msg.Open(TOKENS, 0), msg.Announce(TOKENS, b"a guess"), msg.Abort(Cause.DECODE_ABORTED)):
        rank, links = prefill()
        rank.handle(ev.EngineOpened(ROOM, TOKENS, ANYONE), 0.0)
        before = kept(rank)
        assert answers(say(rank, links[OTHER], body)) == [(links[OTHER], msg.Drained(Cause.NOT_ENTITLED))]
        assert kept(rank) == before
        assert answers(say(rank, links[MINE], ASKS["open"])) == [(links[MINE], msg.Opened())]


def test_who_has_guessed_an_id_before_an_engine_that_means_anyone_has_not_got_the_room() -> None:
    rank, links = prefill()
    say(rank, links[OTHER], msg.Open(TOKENS, 0, b"a guess"))
    told = answers(rank.handle(ev.EngineOpened(ROOM, TOKENS, ANYONE), 0.0))
    assert told == [(links[OTHER], msg.Drained(Cause.NOT_ENTITLED))]
    assert answers(say(rank, links[MINE], ASKS["open"])) == [(links[MINE], msg.Opened())]


def test_a_prompt_of_another_length_is_told_to_who_asks_for_a_room_that_is_anyone_s() -> None:
    for body in (msg.Open(TOKENS + 1, 0, SECRET), msg.Announce(TOKENS + 1, SECRET)):
        rank, links = prefill()
        rank.handle(ev.EngineOpened(ROOM, TOKENS, ANYONE), 0.0)
        assert answers(say(rank, links[MINE], body)) == [(links[MINE], msg.Drained(Cause.PLAN_MISMATCH))]


def test_a_refused_room_that_was_for_anyone_tells_who_asks_that_it_was_refused() -> None:
    rank, links = prefill()
    rank.handle(ev.EngineOpened(ROOM, TOKENS, ANYONE), 0.0)
    rank.handle(ev.EngineRefused(ROOM, Cause.REFUSED), 0.0)
    for group in (MINE, OTHER):
        assert answers(say(rank, links[group], ASKS["open"])) == [(links[group], msg.Drained(Cause.REFUSED))]


# ------------------------------------------------------------------------------------------ between endpoints
def stranger(pair: Pair, group: int) -> DecodeEndpoint:
    """A decode endpoint of another group that has called the same prefill ranks."""
    decode = pair.plan.decode
    end = DecodeEndpoint(
        decode, 0, noise(decode, 0, pair.pages, 3), pair.transport(), chunk_tokens=pair.plan.chunk_tokens, group=group,
        settings=SMALL
    )  # fmt: skip
    end.connect(pair.plan.prefill, [each.address for each in pair.prefills])
    pair.pump(lambda: end.poll() is not None and end.ready())
    return end


def test_a_stranger_that_guesses_an_id_first_gets_nothing() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        other = stranger(pair, 666)
        room = pair.name(30)
        before = [tensor.clone() for tensor in tokens_of(other.pool, list(range(8)))]
        other.open(room, 30, list(range(8)))
        pair.pump(lambda: other.poll() is not None and bool(pair.prefills[0].metrics()["rooms"]))
        pair.open_decode(room)
        pair.open_prefill(room)
        pair.produce(room)
        told: list[Cause] = []

        def over() -> bool:
            other.poll()
            told.extend(outcome.cause for outcome in other.finished())
            return pair.over(room) and bool(told)

        pair.pump(over)
        assert told == [Cause.NOT_ENTITLED] and pair.causes(room) == {Cause.NONE}
        pair.check(room)
        assert all(torch.equal(*each) for each in zip(before, tokens_of(other.pool, list(range(8))), strict=True))
        other.close()


def test_a_secret_that_is_not_shown_ends_the_room_where_it_was_not_known() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        room = pair.name(30)
        ours, theirs, tokens, _ = pair.tables[room]
        pair.prefills[0].open(room, tokens, ours, secret=SECRET)
        pair.decodes[0].open(room, tokens, theirs, secret=b"a guess")
        pair.pump(lambda: ("D", 0, room) in pair.outcomes)
        outcome = pair.outcomes["D", 0, room]
        assert outcome.cause is Cause.NOT_ENTITLED and "another secret" in outcome.reason
        again = Room(room.id, 1)
        pair.tables[again] = ours, theirs, tokens, 0
        pair.decodes[0].open(again, tokens, theirs, secret=SECRET)
        pair.prefills[0].open(again, tokens, ours, secret=SECRET)
        pair.finish(again)
        pair.check(again)
        pair.prefills[0].abort(room)


def test_a_trace_replays_and_has_no_secret(tmp_path: Path) -> None:
    rank, links, _ = spoken(("open", "engine", "owner", "abort"), MINE, b"")
    rank.handle(ev.ForwardScheduled(ROOM), 0.0)
    assert links
    save(rank, tmp_path / "P0.jsonl")
    text = (tmp_path / "P0.jsonl").read_text()
    assert SECRET.hex() not in text and str(SECRET) not in text and "NOT_ENTITLED" in text
    assert [replay(log) for log in load(tmp_path / "P0.jsonl")] == [None]


@pytest.mark.parametrize("secret", ["text", bytearray(3), None, bytes(65)])
def test_what_is_no_secret_is_refused_at_the_call(secret: bytes) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        room = pair.name(30)
        ours, theirs, tokens, _ = pair.tables[room]
        with pytest.raises(ArgumentError, match="up to 64 bytes"):
            pair.prefills[0].open(room, tokens, ours, secret=secret)
        with pytest.raises(ArgumentError, match="up to 64 bytes"):
            pair.decodes[0].open(room, tokens, theirs, secret=secret)
