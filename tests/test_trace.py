"""Traces can be written, read, replayed and told; a doctored one is caught at its place."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproto.cli import main as kvproto_main
from kvproto.fsm.plain_json import PlainError
from kvproto.fsm.vocabulary import Report
from kvproto.observe.written import room_from
from kvproto.protocol import messages as msg
from kvproto.protocol.effects import AnnounceReleased, Transmit
from kvproto.protocol.events import room_key
from kvproto.settings import Settings
from kvproto.verify.cli.replay_command import main as replay_main
from kvproto.verify.cli.trace_command import main as trace_main
from kvproto.verify.draw.scenes import ROOM, SCENES, open_room
from kvproto.verify.draw.stage import CHUNK_TOKENS, SceneRanks, SceneStage
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.trace.rank_stories import TELLING
from kvproto.verify.trace.stories import (
    HeardEntry,
    Log,
    SentEntry,
    StepEntry,
    TraceError,
    lines,
    load,
    log_of,
    merge,
    parse,
    replay,
    rooms,
    save,
    select,
    sequence,
    text,
)

EVENTS, EFFECTS, MESSAGES = TELLING.events, TELLING.effects, TELLING.messages
plain, struct = TELLING.json.plain, TELLING.json.struct

SECOND = room_key(8, 0)
every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
ABORT = next(scene for scene in SCENES if scene.name == "abort").logs()
WELL = next(scene for scene in SCENES if scene.name == "well").logs()


# ------------------------------------------------------------------------------------- written and read
@every_scene
def test_a_trace_comes_back_as_it_was_and_replays(scene: Scene) -> None:
    for log in scene.logs():
        (back,) = parse(lines(log))
        assert back == log
        assert replay(back) is None
        assert log.head.whole


def test_room_ids_of_64_bits_and_generations_come_back(tmp_path: Path) -> None:
    stage = SceneStage(SceneRanks())
    stage.run(1e-3)
    room = room_key(2**64 - 1, 2**32 - 1)
    open_room(stage, room, CHUNK_TOKENS)
    stage.run(0.02)
    save(stage.ranks.values(), tmp_path / "t.jsonl")
    logs = load(tmp_path / "t.jsonl")
    assert [log.head.name for log in logs] == ["P0", "D0"]
    assert list(rooms(merge(logs))) == [room]
    assert "18446744073709551615.4294967295" in (tmp_path / "t.jsonl").read_text()


def test_a_trace_that_begins_in_the_middle_replays(tmp_path: Path) -> None:
    stage = SceneStage(SceneRanks(settings=Settings(trace=40)))
    stage.run(1e-3)
    for room in range(1, 30):
        open_room(stage, room, CHUNK_TOKENS)
        stage.run(0.7e-3)
    stage.run(0.02)
    for rank in stage.ranks.values():
        log = log_of(rank)
        assert not log.head.whole
        assert len(log.entries) == 40
        assert any(isinstance(entry, StepEntry) and entry.value is not None for entry in log.entries)
        assert replay(next(iter(parse(lines(log))))) is None


def test_forgotten_tombstones_do_not_disturb_the_replay() -> None:
    stage = SceneStage(SceneRanks(settings=Settings(tombstones=1)))
    stage.run(1e-3)
    for room in (ROOM, SECOND, ROOM):
        open_room(stage, room, CHUNK_TOKENS)
        stage.run(0.02)
    logs = [log_of(rank) for rank in stage.ranks.values()]
    assert all(replay(log) is None for log in logs)
    assert any(isinstance(entry, StepEntry) and entry.value is not None for log in logs for entry in log.entries)


@pytest.mark.parametrize("kind", [*EVENTS.values(), *EFFECTS.values(), *MESSAGES.values()], ids=lambda k: k.__name__)
def test_what_is_not_of_its_type_is_refused_by_name(kind: type) -> None:
    name = kind.__struct_config__.tag or kind.__name__  # type: ignore[attr-defined]
    base = {"Event": EVENTS, "Effect": EFFECTS, "Body": MESSAGES}
    root = next(cls for cls in kind.__mro__ if cls.__name__ in base)
    with pytest.raises(PlainError, match=r"fields of|no room|is no|object is expected"):
        struct(root, {"type": name, **dict.fromkeys((*kind.__struct_fields__, "more"), object())})  # type: ignore[attr-defined]


@pytest.mark.parametrize(("line", "says"), [
    ("not json", "malformed"), ('{"kind": "step"}', "must name the rank"), ("[]", "object"),
    ('{"kind": "rank", "format": 99}', "format 99"), ('{"kind": "rank", "format": 2}', "missing"),
])  # fmt: skip
def test_a_file_that_is_no_trace_is_named_with_its_line(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(TraceError, match=rf"t\.jsonl:2: .*{says}"):
        load(path)
    assert kvproto_main(["replay", str(path)]) == 2


def test_no_trace_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert kvproto_main(["trace", str(tmp_path / "empty.jsonl")]) == 2
    assert "no trace in it" in capsys.readouterr().err
    assert kvproto_main(["trace", str(tmp_path / "absent.jsonl")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_rooms_by_name(room: int, gen: int) -> None:
    key = room_key(room, gen)
    assert room_from(plain(key, "room"), "here") == key


# --------------------------------------------------------------------------------------------- doctored
def doctored(log: Log, chance: random.Random) -> tuple[Log, StepEntry]:
    """The log with one step changed in one way, and that step."""
    steps = [(i, e) for i, e in enumerate(log.entries) if isinstance(e, StepEntry) and e.row is not None]
    place, step = chance.choice(steps)
    how = chance.choice(["target", "row", "effects", "source"])
    others = [each for _, each in steps if each.machine == step.machine]
    if how == "target":
        changed = replace(step, target="OPEN" if step.target != "OPEN" else "DONE")
    elif how == "row":
        changed = replace(step, row=(step.row or 0) + 1)
    elif how == "effects":
        changed = replace(step, effects=step.effects[1:] or (Report("a", "b"),))
    else:
        changed = replace(step, source=next((e.source for e in others if e.source != step.source), "NOWHERE"))
    return Log(log.head, [*log.entries[:place], changed, *log.entries[place + 1 :]]), changed


@pytest.mark.parametrize("seed", range(60))
def test_a_doctored_step_is_caught_at_that_step(seed: int) -> None:
    log, step = doctored(ABORT[seed % len(ABORT)], random.Random(seed))
    found = replay(next(iter(parse(lines(log)))))
    assert found is not None
    assert found.line == step.line


@pytest.mark.parametrize("seed", range(20))
def test_a_step_that_was_taken_out_is_noticed_at_the_next_one_of_that_machine(seed: int) -> None:
    chance, log = random.Random(seed), ABORT[seed % len(ABORT)]
    moves = [(i, e) for i, e in enumerate(log.entries) if isinstance(e, StepEntry) and e.source != e.target]
    followed = [
        (i, e) for i, e in moves
        if any(isinstance(o, StepEntry) and (o.machine, o.key) == (e.machine, e.key) for o in log.entries[i + 1 :])
    ]  # fmt: skip
    place, gone = chance.choice(followed)
    shorter = Log(log.head, [*log.entries[:place], *log.entries[place + 1 :]])
    following = next(e for e in log.entries[place + 1 :]
                     if isinstance(e, StepEntry) and (e.machine, e.key) == (gone.machine, gone.key))  # fmt: skip
    found = replay(shorter)
    assert found is not None
    assert found.line == following.line


def test_another_version_of_the_tables_is_told_before_anything_else() -> None:
    log = Log(replace(WELL[0].head, digest="0" * 16), WELL[0].entries)
    found = replay(log)
    assert found is not None
    assert "digest" in str(found)
    assert replay(log, any_tables=True) is None


# ------------------------------------------------------------------------------------------------- told
@every_scene
def test_causes_come_before_effects_and_nothing_is_left_out(scene: Scene) -> None:
    logs = scene.logs()
    story = merge(logs)
    assert len(story) == sum(len(log.entries) for log in logs)
    assert all(moment.cause is None or moment.cause < moment.index for moment in story)
    heard = [moment for moment in story if isinstance(moment.entry, HeardEntry)]
    assert heard
    for moment in heard:
        assert moment.cause is not None, moment
        assert story[moment.cause].party != moment.party
    for name in {moment.party for moment in story}:
        times = [moment.time for moment in story if moment.party == name]
        assert times == sorted(times)


def test_clocks_that_disagree_do_not_disturb_the_order() -> None:
    late = [Log(log.head, [e if isinstance(e, SentEntry) else replace(e, time=e.time + 1000.0) for e in log.entries])
            if log.head.side == "decode" else log for log in WELL]  # fmt: skip
    as_it_was, skewed = merge(WELL), merge(late)
    assert not any(moment.way for moment in skewed)
    assert sum(m.cause is not None for m in skewed) == sum(m.cause is not None for m in as_it_was)


def test_what_a_write_carries_comes_after_it_by_any_clock() -> None:
    early = [Log(log.head, [e if isinstance(e, SentEntry) else replace(e, time=e.time - 1000.0) for e in log.entries])
             if log.head.side == "decode" else log for log in WELL]  # fmt: skip
    skewed = merge(early)
    carried = [m for m in skewed if m.message is not None and m.message.name == "STG_NOTIFY"]
    assert carried and all(m.cause is not None and m.cause < m.index for m in carried)
    assert not any(moment.way for moment in skewed)
    assert len(skewed) == len(merge(WELL))


def test_whether_it_was_heard_is_untold_where_the_receiver_s_log_is_not_there_or_begins_later() -> None:
    alone = merge([log for log in WELL if log.head.side == "prefill"])
    assert {m.way for m in alone if isinstance(m.entry, SentEntry)} == {"untold"}
    assert "--)" in sequence(alone, list(rooms(alone))) and "--x" not in sequence(alone, list(rooms(alone)))
    prefill = next(log for log in WELL if log.head.side == "prefill")
    others = [log for log in WELL if log is not prefill]
    heard = [i for i, e in enumerate(prefill.entries) if isinstance(e, HeardEntry)]
    short = prefill.entries[heard[3] :]
    story = merge([Log(replace(prefill.head, whole=False), short), *others])
    assert [m.way for m in story if m.way and isinstance(m.entry, SentEntry)] == ["untold"] * 3
    place = next(i for i, e in enumerate(short) if i and isinstance(e, HeardEntry))
    story = merge([Log(replace(prefill.head, whole=False), [*short[:place], *short[place + 1 :]]), *others])
    assert [m.way for m in story if m.way and isinstance(m.entry, SentEntry)] == ["untold"] * 3 + ["lost"]


def test_lost_repeated_and_unseen_messages_are_told_as_such() -> None:
    (lost,) = (m for m in merge(next(s for s in SCENES if s.name == "repeated").logs()) if m.way)
    assert lost.way == "lost"
    assert lost.message is not None
    assert lost.message.name == "STAGING_RSP"
    alone = merge([log for log in WELL if log.head.side == "decode"])
    assert not any(moment.way == "unseen" and moment.message is None for moment in alone)
    assert {m.way for m in alone if isinstance(m.entry, HeardEntry)} == {"unseen"}
    log = WELL[0]
    place = next(i for i, e in enumerate(log.entries) if isinstance(e, HeardEntry) and isinstance(e.body, msg.ChunkAck))
    twice = Log(log.head, [*log.entries[: place + 1], log.entries[place], *log.entries[place + 1 :]])
    assert [m.way for m in merge([twice, *WELL[1:]]) if m.way] == ["repeated"]


def test_the_story_of_a_room_has_its_watermark_and_no_other_room() -> None:
    stage = SceneStage(SceneRanks(settings=Settings(ring_bytes=1 << 15)))
    stage.run(1e-3)
    open_room(stage, ROOM, 2 * CHUNK_TOKENS)
    open_room(stage, SECOND, 2 * CHUNK_TOKENS)
    stage.run(0.1)
    story = merge([log_of(rank) for rank in stage.ranks.values()])
    told = select(story, [ROOM])
    names = {m.message.name for m in told if m.message is not None}
    assert {"OPEN", "STAGING_REQ", "WATERMARK", "CHUNK_ACK"} <= names
    assert {m.message.subject for m in told if m.message is not None} == {ROOM, None}
    said = "\n".join(text(story, ROOM))
    assert said.count("=> AnnounceReleased") == 2
    effects = [effect for m in told if isinstance(m.entry, StepEntry) for effect in m.entry.effects]
    assert sum(isinstance(effect, AnnounceReleased) for effect in effects) == 2


@every_scene
def test_a_sequence_chart_says_each_message_once(scene: Scene) -> None:
    story = merge(scene.logs())
    chart = sequence(story, scene.subjects)
    entries = [m.entry for m in select(story, scene.subjects)]
    sent = [entry for entry in entries if isinstance(entry, SentEntry) and isinstance(entry.effect, Transmit)]
    arrows = [line for line in chart.splitlines() if "->>" in line or "--x" in line]
    assert len([line for line in arrows if line.split("->>")[0].strip() not in line.split("->>")[-1][:3]]) >= len(sent)
    assert ("--x" in chart) == (scene.name == "repeated")
    assert ";" not in chart


# --------------------------------------------------------------------------------------------- commands
def test_the_commands_tell_replay_and_catch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for log in WELL:
        files.append(str(tmp_path / f"{log.head.name}.jsonl"))
        Path(files[-1]).write_text("".join(line + "\n" for line in lines(log)))
    assert trace_main(files) == 0
    assert "room 7 gen 0" in capsys.readouterr().out
    assert trace_main([*files, "--room", "7"]) == 0
    assert "STAGING_REQ chunk 0" in capsys.readouterr().out
    assert kvproto_main(["trace", *files, "--room", "8"]) == 2
    assert kvproto_main(["trace", *files, "--room", "x"]) == 2
    assert trace_main([*files, "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("sequenceDiagram")
    out = tmp_path / "chart.mmd"
    assert trace_main([*files, "--format", "mermaid", "--out", str(out)]) == 0
    assert out.read_text().startswith("sequenceDiagram")
    assert trace_main([*files, "--room", "7", "--format", "json"]) == 0
    told = {each["index"]: each for each in json.loads(capsys.readouterr().out)}
    assert {each["kind"] for each in told.values()} == {"step", "sent", "heard"}
    assert all(each["cause"] in told for each in told.values() if each["kind"] == "heard" and each["subject"])
    assert replay_main(files) == 0
    path = Path(files[0])
    path.write_text(path.read_text().replace('"to": "GATHERING"', '"to": "WRITING"', 1))
    capsys.readouterr()
    assert replay_main(files) == 1
    said = capsys.readouterr().out
    assert "the tables say  GATHERING" in said
    assert "the trace says  WRITING" in said
    assert replay_main([*files, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["differences"]) == 1
