"""The scenes that PROTOCOL.md shows: each is a stage, a script, and what to look at."""

from __future__ import annotations

from collections.abc import Callable

from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause
from kvproto.settings import Settings
from kvproto.verify.draw.stage import CHUNK_TOKENS, MESSAGE, Arrivals, SceneRanks, SceneStage, in_time
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.trace.stories import Log, log_of

ROOM = room_key(7, 0)


def _traces(stage: SceneStage) -> list[Log]:
    return [log_of(rank) for rank in (*stage.past, *stage.ranks.values())]


def open_room(stage: SceneStage, room: int, tokens: int, *, compute: float = 300e-6) -> None:
    """Both engines open a room; the forward computes a chunk every `compute` seconds."""
    for name in stage.ranks:
        if name[0] == "D":
            stage.tell(name, ev.RoomOpened(room, stage.terms(name), tokens, 0))
            continue
        stage.tell(name, ev.EngineOpened(room, tokens))
        stage.tell(name, ev.ForwardScheduled(room), compute)
        for k, done in enumerate([*range(CHUNK_TOKENS, tokens, CHUNK_TOKENS), tokens]):
            stage.tell(name, ev.TokensProduced(room, done), compute * (k + 3))
        stage.tell(name, ev.AuxProvided(room), compute * (tokens // CHUNK_TOKENS + 3))


def _begin(cast: SceneRanks, arrivals: Arrivals = in_time) -> SceneStage:
    stage = SceneStage(cast, arrivals=arrivals)
    stage.run(1e-3)
    return stage


def _with_ring(chunks: float) -> SceneRanks:
    plan = Plan(SceneRanks().layout("P"), SceneRanks().layout("D"), CHUNK_TOKENS)
    return SceneRanks(settings=Settings(ring_bytes=int(plan.grant_bytes(0, Cut(0, CHUNK_TOKENS)) * chunks)))


def well() -> SceneStage:
    """Two prefill ranks fill one decode rank."""
    stage = _begin(SceneRanks(prefill=2))
    open_room(stage, ROOM, CHUNK_TOKENS)
    stage.run(20e-3)
    return stage


def deferral() -> SceneStage:
    """Two chunks, a ring for one and a half."""
    stage = _begin(_with_ring(1.5))
    open_room(stage, ROOM, 2 * CHUNK_TOKENS, compute=50e-6)
    stage.run(20e-3)
    return stage


def slices() -> SceneStage:
    """A chunk that is larger than the ring."""
    stage = _begin(_with_ring(0.5))
    open_room(stage, ROOM, CHUNK_TOKENS)
    stage.run(20e-3)
    return stage


def abort() -> SceneStage:
    """The decode engine gives up while a write is in flight."""
    stage = _begin(SceneRanks())
    open_room(stage, ROOM, CHUNK_TOKENS)
    stage.tell("D0", ev.EngineAborted(ROOM, Cause.DECODE_ABORTED), 1.2e-3)
    stage.run(20e-3)
    return stage


def lost() -> SceneStage:
    """A prefill rank dies with a grant in hand, and comes back."""
    stage = _begin(SceneRanks())
    open_room(stage, ROOM, CHUNK_TOKENS)
    stage.run(0.8e-3)
    stage.kill("P0")
    stage.run(8.0)
    stage.start_prefill(0, incarnation=2)
    stage.run(2.0)
    return stage


def told() -> SceneStage:
    """A write that carries its notification; its writer is the last to know that it has ended."""
    stage = _begin(SceneRanks(native_notify=True))
    open_room(stage, ROOM, CHUNK_TOKENS)
    stage.run(20e-3)
    return stage


def repeated() -> SceneStage:
    """The first answer is lost; the request is simply repeated."""
    seen: list[msg.Message] = []

    def arrivals(_sender: str, _receiver: str, body: msg.Message) -> tuple[float, ...]:
        first = isinstance(body, msg.StagingRsp) and not seen
        seen.extend([body] if first else [])
        return () if first else (MESSAGE,)

    stage = _begin(SceneRanks(), arrivals)
    open_room(stage, ROOM, CHUNK_TOKENS)
    stage.run(1.0)
    return stage


def _scene(play: Callable[[], SceneStage], title: str, *, aside: bool = False) -> Scene:
    return Scene(play.__name__, title, play, _traces, (ROOM,), aside, lambda stage: stage.marks)


SCENES: tuple[Scene, ...] = (
    _scene(well, "The usual way: two prefill ranks fill one decode rank's grant"),
    _scene(deferral, "Deferral: the second chunk's promise waits for the watermark"),
    _scene(slices, "Slice fallback: the chunk does not fit the ring and goes page to page"),
    _scene(told, "A write that carries its notification: confirmed before its writer has seen it end"),
    _scene(repeated, "A lost answer: the timer asks again"),
    _scene(abort, "Abort: decode gives up while a write is in flight"),
    _scene(lost, "A lost link: the region is quarantined until the peer is back", aside=True),
)
