"""Wire versions: the schema of each one, with example frames, as `spec/versions/` keeps it.

A released file never changes: peers of that version are in use.  The newest one is made anew until it is released,
which `"released": true` in it says.  `faults` compares a file with the code: every example decodes to the message that
it was made of, fields stand where they stood, and what was added stands behind them and has a default.

python -m kvproto.verify.cli.versions_command writes the file of the newest version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvproto.fsm.codec import Body, WireError
from kvproto.fsm.plain_json import hints
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause
from kvproto.verify.draw.generated_docs import ROOT
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.framework.draw.describe import kind_of
from kvproto.verify.trace.rank_stories import TELLING

Json = dict[str, Any]
FOLDER = ROOT / "spec" / "versions"
LAYOUT = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=2)
EPOCH, ROOM = 65537, room_key(7, 2)
BLAME = msg.Blame("decode", 1, "the kernel raised")
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HELLO: Json = {
    "version": msg.VERSION, "digest": "layout:ab2aa399 ring:6661dc94", "session": 1 << 20, "group": 2, "rank": 1,
    "layout": LAYOUT, "chunk_tokens": 256, "lease": 30.0,
}  # fmt: skip
BUILD: Json = {"oldest": msg.OLDEST, "agreements": "layout:1 ring:1", "capabilities": "announce"}
#: what messages hold
STRUCTS: dict[str, type[msgspec.Struct]] = {cls.__name__: cls for cls in (Layout, Placement, Strides, msg.Blame)}
#: each message at least twice where it has a field with a default: with all left as it is, and with none
EXAMPLES: tuple[msg.Message, ...] = (
    msg.Hello(**HELLO, endpoint=b"endpoint"),
    msg.Hello(**HELLO, endpoint=b"endpoint", placement=dense(LAYOUT, 1), to_group=1, to_rank=1, **BUILD),
    msg.Welcome(**HELLO, epoch=EPOCH), msg.Welcome(**HELLO, epoch=EPOCH, **BUILD),
    msg.Refusal(1 << 20, "chunks of 256 tokens against 512"), msg.Reset(), msg.Heartbeat(),
    msg.Goodbye(quiet=True), msg.Goodbye(quiet=False, session=1 << 20),
    msg.Watermark(3, 512), msg.Watermark(3, 512, 9), msg.WatermarkReq(), msg.WatermarkReq(9),
    msg.Open(300, 44), msg.Open(300, 44, b"a secret", TRACE, 3, 2, again=True),
    msg.Announce(300), msg.Announce(300, b"a secret", TRACE), msg.Opened(),
    msg.StagingReq(3), msg.StagingReq(3, 1.5),
    msg.StagingRsp(3, 9, 512, 2, 1024, 1, 256), msg.StagingRsp(3, 9, 512, 2, 1024, 1, 256, 1.5, queued=True),
    msg.StagingQueued(3, 1, 256), msg.StagingQueued(3, 1, 256, early=True), msg.StagingRefused(3),
    msg.PagesReq(3), msg.PagesReq(3, 1.5),
    msg.PagesRsp(3, bytes(range(8))), msg.PagesRsp(3, bytes(range(8)), 1.5),
    msg.StgNotify(3, 1), msg.ChunkAck(3), msg.Aux(b"aux row"), msg.Aux(b"aux row", TRACE), msg.AuxAck(),
    msg.Abort(Cause.DECODE_ABORTED), msg.Abort(Cause.KERNEL_FAILED, b"a secret", BLAME),
    msg.Drained(Cause.DECODE_ABORTED), msg.Drained(Cause.WRITE_FAILED, BLAME), msg.Noted(), msg.Gone(),
)  # fmt: skip


def document() -> Json:
    """The newest wire version, as this code speaks it."""
    return {
        "version": msg.VERSION, "released": False,
        "messages": [
            {"name": talk.name, "sender": talk.sender, "fields": _fields(talk.body), "examples": _examples(talk.body)}
            for talk in TALK
        ],
        "structs": {name: _fields(cls) for name, cls in STRUCTS.items()},
        "causes": {cause.name: int(cause) for cause in Cause},
    }  # fmt: skip


def _fields(cls: type) -> list[Json]:
    own = {field.name: field for field in msgspec.structs.fields(cls)}
    said: list[Json] = [
        {"name": name, "type": kind_of(hint), "required": own[name].required} for name, hint in hints(cls).items()
    ]
    return [{**each, **_default(own[each["name"]])} for each in said]


def _default(field: msgspec.structs.FieldInfo) -> Json:
    """Return the value of a message that leaves the field out; nothing if that value is no value."""
    if field.required or field.default is msgspec.UNSET:
        return {}
    return {"default": TELLING.json.plain(field.default)}


def _examples(body: type[Body]) -> list[Json]:
    made = [each for each in EXAMPLES if type(each) is body]
    return [{"frame": encode(EPOCH, 0 if _about_link(body) else ROOM, each).hex(), "message": TELLING.json.plain(each)}
            for each in made]  # fmt: skip


def _about_link(body: type[Body]) -> bool:
    return body in msg.LinkBody.__args__


def text(kept: Json) -> str:
    """The document as it is written to a file: a line for each field and each example."""
    messages = ",\n".join(
        f'{{"name": {json.dumps(said["name"])}, "sender": {json.dumps(said["sender"])},\n'
        f' "fields": {_lines(said["fields"])},\n "examples": {_lines(said["examples"])}}}'
        for said in kept["messages"]
    )
    structs = ",\n".join(f" {json.dumps(name)}: {_lines(fields)}" for name, fields in kept["structs"].items())
    return (
        f'{{"version": {kept["version"]}, "released": {json.dumps(kept["released"])},\n"messages": [\n{messages}\n],\n'
        f'"structs": {{\n{structs}\n}},\n"causes": {json.dumps(kept["causes"])}}}\n'
    )


def _lines(items: list[Json]) -> str:
    return "[" + ",".join("\n  " + json.dumps(each) for each in items) + "]"


def read() -> dict[int, Json]:
    found = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("[0-9]*.json"))]
    return {each["version"]: each for each in found}


def write(folder: Path = FOLDER) -> Path:
    """Write the file of the newest version; a released one stays as it is."""
    path = folder / f"{msg.VERSION}.json"
    if not path.exists() or not json.loads(path.read_text())["released"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(document()))
    return path


def faults(kept: Json) -> list[str]:
    """In what this code does not speak the version of that file any more, a sentence each."""
    bodies = {talk.name: talk.body for talk in TALK}
    found = []
    for said in kept["messages"]:
        name = said["name"]
        if name not in bodies:
            found.append(f"{name} is gone")
            continue
        found += [f"{name}{wrong}" for wrong in _moved(said["fields"], _fields(bodies[name]))]
        found += [f"{name}: {wrong}" for each in said["examples"] for wrong in _unlike(each, bodies[name])]
    for name, was in kept["structs"].items():
        now = _fields(STRUCTS[name])
        if not STRUCTS[name].__struct_config__.array_like:  # a map: its fields may stand in any order
            names = [field["name"] for field in was]
            now = sorted(now, key=lambda field: names.index(field["name"]) if field["name"] in names else len(names))
        found += [f"{name}{wrong}" for wrong in _moved(was, now)]
    causes = {cause.name: int(cause) for cause in Cause}
    return found + [f"cause {name} is no longer {number}" for name, number in kept["causes"].items()
                    if causes.get(name) != number]  # fmt: skip


def _moved(was: list[Json], now: list[Json]) -> Iterator[str]:
    """Fields that changed, and new ones without a default."""
    for at, field in enumerate(was):
        if at >= len(now) or now[at] != field:
            yield f".{field['name']} was {field}, and is {now[at] if at < len(now) else 'gone'}"
    yield from (f".{field['name']} was added without a default" for field in now[len(was) :] if field["required"])


def _unlike(example: Json, body: type[Body]) -> Iterator[str]:
    """Whether the frame decodes to its message; what was added since has its default."""
    try:
        _, _, found = decode(bytes.fromhex(example["frame"]))
    except WireError as error:
        yield f"a frame of it does not decode: {error}"
        return
    plain = TELLING.json.plain(found)
    assert isinstance(plain, dict)
    unlike = {name: value for name, value in example["message"].items() if plain.get(name) != value}
    if unlike or type(found) is not body:
        yield f"a frame of it decodes to {plain}, not to {example['message']}"
