"""Each copy of a message is told by its fate, judged by a stage that carried every one of them."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from examples.two_phase_commit.parties import WORDS
from examples.two_phase_commit.worlds import SCENES as COMMIT_SCENES
from kvproto.fsm.copies import CopyNumbers
from kvproto.fsm.telling import Moment
from kvproto.protocol import messages as msg
from kvproto.verify.draw.scenes import ROOM, SCENES, open_room
from kvproto.verify.draw.stage import CHUNK_TOKENS, MESSAGE, SceneRanks, SceneStage
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.framework.trace.merge import merge as merge_any
from kvproto.verify.trace.rank_stories import TELLING
from kvproto.verify.trace.stories import HeardEntry, Log, SentEntry, StepEntry, log_of, merge

Told = dict[tuple[str, str, int, bool, int], list[float]]
every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)


def carried(stage: SceneStage) -> Told:
    """The stage's knowledge: by copy, when it was heard."""
    return {(c.sender, c.receiver, c.epoch, bool(c.room), c.number): c.heard for c in stage.carried}


def told(story: list[Moment]) -> Told:
    """The same of a story."""
    found: dict[int, tuple[tuple[str, str, int, bool, int], list[float]]] = {}
    for moment in story:
        if isinstance(moment.entry, SentEntry):
            assert moment.message is not None
            epoch, room = TELLING.era(moment.entry)
            key = moment.message.sender, moment.message.receiver, epoch, room, moment.entry.number
            found[moment.index] = key, []
        elif isinstance(moment.entry, HeardEntry) and moment.entry.number:
            assert moment.cause is not None, moment
            found[moment.cause][1].append(moment.time)
            assert (moment.way == "repeated") == (len(found[moment.cause][1]) > 1)
    for index, (_, times) in found.items():
        assert (story[index].way in {"lost", "ended"}) == (not times)
    return dict(found.values())


def logs_of(stage: SceneStage) -> list[Log]:
    return [log_of(rank) for rank in (*stage.past, *stage.ranks.values())]


def by_age(logs: list[Log]) -> list[Log]:
    """The logs as they would be if nobody numbered copies."""
    return [Log(log.head, [replace(e, number=0) if isinstance(e, SentEntry | HeardEntry) else e for e in log.entries])
            for log in logs]  # fmt: skip


# --------------------------------------------------------------------------------------- against the stage
@every_scene
def test_every_scene_tells_what_the_stage_has_done(scene: Scene) -> None:
    stage = scene.play()
    assert told(merge(scene.traces(stage))) == carried(stage)


def harmed(seed: int) -> SceneStage:
    """Two chunks through a network that loses, doubles and delays, each copy by itself."""
    chance = random.Random(seed)

    def arrivals(_sender: str, _receiver: str, body: msg.Message) -> tuple[float, ...]:
        late = MESSAGE * chance.choice([1, 1, 1, 2, 30, 6000])
        lost = 0 if isinstance(body, msg.Hello | msg.Welcome) else 0.25
        return () if chance.random() < lost else (late, late + 3 * MESSAGE)[: chance.choice([1, 1, 2])]

    stage = SceneStage(SceneRanks(prefill=1 + seed % 2), arrivals=arrivals)
    stage.run(1e-3)
    open_room(stage, ROOM, 2 * CHUNK_TOKENS)
    stage.run(4.0)
    return stage


@pytest.mark.parametrize("seed", range(24))
def test_what_is_lost_doubled_and_late_is_told_as_it_was(seed: int) -> None:
    stage = harmed(seed)
    assert told(merge(logs_of(stage))) == carried(stage)


def test_pairing_by_age_would_be_found_out() -> None:
    """The judge judges: without numbers a lost copy is drawn as delivered, and the other way round."""
    wrong = 0
    for seed in range(8):
        stage = harmed(seed)
        heard = sum(m.way == "lost" for m in merge(by_age(logs_of(stage))) if isinstance(m.entry, SentEntry))
        wrong += heard != sum(not copy.heard for copy in stage.carried)
        wrong += merge_ways(merge(by_age(logs_of(stage)))) != merge_ways(merge(logs_of(stage)))
    assert wrong > 4


def merge_ways(story: list[Moment]) -> list[tuple[int, str]]:
    return sorted((moment.entry.line, f"{moment.party} {moment.way}") for moment in story if moment.message)


def test_a_trace_that_begins_later_than_the_others_pairs_nothing_wrongly() -> None:
    """A ring forgets: what the receiver's has no more is not put in the place of what it has."""
    stage = next(scene for scene in SCENES if scene.name == "repeated").play()
    logs, wanted = logs_of(stage), carried(stage)
    for cut in range(0, 40, 3):
        short = [Log(log.head, log.entries[cut:] if log.head.side == "prefill" else log.entries) for log in logs]
        found = {key: times for key, times in _known(merge(short)).items() if times}
        assert all(set(times) <= set(wanted[key]) for key, times in found.items())


@every_scene
def test_nothing_that_arrived_is_lost_where_the_receiver_s_trace_ends_before(scene: Scene) -> None:
    """Each rank writes its trace when its own room fails, so a failure's traces end at different moments."""
    stage = scene.play()
    logs, wanted = scene.traces(stage), carried(stage)
    ended = 0
    last = {log.head.name: place for place, log in enumerate(logs)}  # only the last life of a rank can end early
    for place in last.values():
        log = logs[place]
        for end in range(1, len(log.entries), 7):
            short = [*logs[:place], Log(log.head, log.entries[:end]), *logs[place + 1 :]]
            for moment in merge(short):
                if isinstance(moment.entry, SentEntry) and moment.way:
                    key = _key(moment)
                    assert moment.way != "lost" or not wanted[key], (end, moment)
                    ended += moment.way == "ended"
    assert ended


def test_what_was_sent_before_a_long_silence_is_lost_though_nothing_came_after_it() -> None:
    """A trace longer than a message may be under way proves the loss without a later message."""
    stage = next(scene for scene in SCENES if scene.name == "well").play()
    logs = logs_of(stage)
    place = next(i for i, log in enumerate(logs) if log.head.side == "prefill")
    log = logs[place]
    heard = [i for i, e in enumerate(log.entries) if isinstance(e, HeardEntry)]
    deaf = [e for i, e in enumerate(log.entries) if i < heard[-1] or not isinstance(e, HeardEntry)]
    last = deaf[-1]
    assert isinstance(last, StepEntry)
    for more, way in ((1.0, "ended"), (6.0, "lost")):
        later = [*logs[:place], Log(log.head, [*deaf, replace(last, time=last.time + more)]), *logs[place + 1 :]]
        assert [m.way for m in merge(later) if m.way] == [way], more


def _key(moment: Moment) -> tuple[str, str, int, bool, int]:
    assert moment.message is not None and isinstance(moment.entry, SentEntry)
    epoch, room = TELLING.era(moment.entry)
    return moment.message.sender, moment.message.receiver, epoch, room, moment.entry.number


def _known(story: list[Moment]) -> Told:
    """By copy whose sending is told, when it was heard."""
    found: dict[int, tuple[tuple[str, str, int, bool, int], list[float]]] = {}
    for moment in story:
        if isinstance(moment.entry, SentEntry) and moment.message is not None:
            key = moment.message.sender, moment.message.receiver, *TELLING.era(moment.entry), moment.entry.number
            found[moment.index] = key, []
        elif isinstance(moment.entry, HeardEntry) and moment.cause in found:
            found[moment.cause][1].append(moment.time)
    return dict(found.values())


def test_a_way_whose_numbers_contradict_each_other_goes_by_age() -> None:
    """A proxy has lost a frame in the middle of a connection: a receiver that counts is one behind then."""
    stage = next(scene for scene in SCENES if scene.name == "well").play()
    logs = logs_of(stage)
    place = next(i for i, e in enumerate(logs[0].entries) if isinstance(e, HeardEntry) and e.header[1] and e.header[2])
    behind = [replace(e, number=e.number - 1) if i > place and isinstance(e, HeardEntry) and e.header[2] else e
              for i, e in enumerate(logs[0].entries) if i != place]  # fmt: skip
    story = merge([Log(logs[0].head, behind), *logs[1:]])
    assert not [m for m in story if m.way in ("unseen", "repeated")]
    assert [m.way for m in story if m.way] == ["lost"]


@pytest.mark.parametrize("scene", COMMIT_SCENES, ids=lambda scene: scene.name)
def test_parties_of_another_protocol_are_numbered_over_all_their_lives(scene: Scene) -> None:
    story = merge_any(scene.logs(), WORDS)
    heard = [m for m in story if isinstance(m.entry, HeardEntry)]
    assert heard and all(isinstance(m.entry, HeardEntry) and m.entry.number for m in heard)
    assert not [m for m in story if m.way in ("unseen", "repeated")]


# ------------------------------------------------------------------------------------------- real connections
def test_both_ends_of_a_connection_give_a_copy_one_number() -> None:
    pytest.importorskip("torch")
    from support.stories import layout

    from kvproto.verify.testing.access import inside
    from kvproto.verify.testing.pair import Pair

    with Pair(layout(2), layout(1), chunk_tokens=8) as pair:
        for tokens in (20, 9):
            room = pair.open(tokens=tokens)
            pair.finish(room)
        story = merge([log_of(inside(each).rank) for each in (*pair.prefills, *pair.decodes)])
    heard = [m for m in story if isinstance(m.entry, HeardEntry) and m.entry.number]
    assert len(heard) > 10
    for moment in heard:
        assert moment.cause is not None and moment.way == "", moment
        sent = story[moment.cause].entry
        assert isinstance(sent, SentEntry) and isinstance(moment.entry, HeardEntry)
        assert sent.number == moment.entry.number


@pytest.mark.parametrize("seed", range(6))
def test_an_engine_stage_knows_each_copy_that_it_has_harmed(seed: int) -> None:
    """Frames of real endpoints, lost and doubled in the middle of a connection: the traces say the same."""
    pytest.importorskip("torch")
    from support.stories import layout

    from kvproto.protocol.codec import decode
    from kvproto.verify.testing.access import inside
    from kvproto.verify.testing.simulated_control import NumberedFrame
    from kvproto.verify.testing.stage import EngineStage

    chance, stage = random.Random(seed), EngineStage(layout(1), layout(1), chunk_tokens=8, sockets=False)
    harmed: dict[tuple[object, ...], str] = {}

    def harm() -> None:
        for way in stage.post.busy():
            frame = stage.post.queues[way][0]
            epoch, room, _ = decode(frame)
            assert isinstance(frame, NumberedFrame)
            copy = epoch, bool(room), frame.number, way
            if room and copy not in harmed:
                harmed[copy] = chance.choice(["lose", "repeat", "", ""])
                if harmed[copy]:
                    stage.hurt_frame(way, 0, harmed[copy])

    for _ in range(2):
        room = stage.name(20)
        stage.open_decode(room)
        stage.open_prefill(room)
        stage.prefetch(room)
        stage.produce(room)
        for _ in range(30):
            for index in range(len(stage.endpoints)):
                stage.poll(index)
                harm()
            stage.late.finish(0) if stage.late.pending else stage.fabric.run()
            stage.clock.advance(0.05)
    stage.drain()
    story = merge([log_of(inside(each).rank) for each in stage.endpoints])
    stage.close()
    known = [m for m in story if isinstance(m.entry, SentEntry | HeardEntry) and m.entry.number]
    ways = {way: sorted((*TELLING.era(m.entry), m.entry.number) for m in known if m.way == way)  # type: ignore[arg-type, union-attr]
            for way in ("lost", "repeated", "unseen")}  # fmt: skip
    gone, twice = (sorted(copy[:3] for copy, how in harmed.items() if how == what) for what in ("lose", "repeat"))
    assert gone and twice
    assert ways == {"lost": gone, "repeated": twice, "unseen": []}


def test_numbers_begin_anew_with_an_era_and_are_forgotten_with_a_way() -> None:
    numbers = CopyNumbers()
    assert [numbers.count("a", 1), numbers.count("b", 1), numbers.count("a", 1), numbers.count("a", 2)] == [1, 1, 2, 1]
    numbers.forget("a", "b", "c")
    assert numbers.count("a", 2) == 1
