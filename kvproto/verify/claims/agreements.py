"""Agreements: results of the code behind each one, which do not change while its version stays.

Two builds of other tables work together, but not two that cut heads otherwise or free a region sooner.  Such meaning is
in no message: `kvproto.protocol.versions.AGREEMENTS` names it, each with a version.  Here the code behind each name is
run on fixed inputs, and every result is a line of text.  `spec/versions/agreements.json` keeps the lines; `faults` says
which of them differ now.  Who means to change one raises the version of its agreement and writes the file anew:
python -m kvproto.verify.cli.versions_command.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Effect
from kvproto.layout.byte_runs import descriptors
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import room_key
from kvproto.protocol.notification import make_tag
from kvproto.protocol.ring import Ring, usable
from kvproto.protocol.timing import Timing
from kvproto.protocol.versions import AGREEMENTS
from kvproto.rank.decode import DecodeRank

Kept = Mapping[str, Mapping[str, Any]]
FILE = "spec/versions/agreements.json"
CHUNK_TOKENS, TOKENS, PREFIX = 16, 40, 4


def _layout(**changed: Any) -> Layout:
    return Layout(**{
        "layers": 5, "heads": 4, "k_dim": 8, "v_dim": 6, "itemsize": 2, "dtype": "bfloat16", "page_size": 4, "tp": 1,
        **changed,
    })  # fmt: skip


#: pairs that differ in heads, stages, replicas of heads, pages and the order of a page
PAIRS = (
    (_layout(tp=2), _layout()), (_layout(), _layout(tp=4)), (_layout(pp=2), _layout(tp=2)),
    (_layout(tp=8), _layout(tp=2)), (_layout(page_size=8), _layout(order="HND")), (_layout(pp=3), _layout(pp=2)),
)  # fmt: skip


def _plans() -> Iterator[tuple[str, Plan]]:
    for at, (prefill, decode) in enumerate(PAIRS):
        yield f"pair {at}", Plan(prefill, decode, CHUNK_TOKENS)


def layout_lines() -> Iterator[str]:
    """Yield cuts of rooms; of each pair shares, places in a region, and byte runs page to page."""
    for groups in (1, 2):
        found = [cut_at(k, TOKENS, PREFIX, CHUNK_TOKENS, groups)
                 for k in range(chunks(TOKENS, PREFIX, CHUNK_TOKENS, groups))]  # fmt: skip
        yield f"chunks of {groups} groups: {[(cut.first, cut.tokens, cut.group) for cut in found]}"
    table = [3, 1, 7, 4, 9, 2, 8, 5, 6, 0]
    for name, plan in _plans():
        for reader in range(plan.decode.ranks):
            for s in plan.writers(reader):
                heads = s.src_head, s.dst_head, s.heads, s.src_layer, s.dst_layer, s.layers
                region = [(plan.part_offset(reader, s.writer, Cut(0, tokens, group, groups)),
                           plan.grant_bytes(reader, Cut(0, tokens, group, groups)))
                          for tokens, (group, groups) in product((16, 5), ((0, 1), (0, 2), (1, 2)))
                          if groups <= plan.fewest_layers]  # fmt: skip
                nbytes = plan.part_bytes(s, Cut(0, 16))
                yield f"{name}: {s.writer} to {reader}: {heads}, {nbytes} bytes, region {region}"
        first = plan.writers(0)[0]
        runs = list(descriptors(plan, first, table, table[::-1], PREFIX, 9))
        yield f"{name}: {len(runs)} runs, from {runs[:6]} to {runs[-1]}"


def joint_lines() -> Iterator[str]:
    """Yield how a room's last tokens and its state are one chunk."""
    kv, state = Cache("kv", (CachePart("k", 4, 40),)), Cache("state", (CachePart("s", 4, 300),), (1, 2), travels=END)
    prefill, decode = (Layout.of_caches((kv, state), layers=5, page_size=4, tp=tp) for tp in (2, 1))
    plan = Plan(prefill, decode, CHUNK_TOKENS)
    terms = 1, plan.state_groups, plan.joint_tokens
    for tokens in (TOKENS, TOKENS - 1, PREFIX + plan.joint_tokens, PREFIX):
        for k in range(chunks(tokens, PREFIX, CHUNK_TOKENS, *terms)):
            cut = cut_at(k, tokens, PREFIX, CHUNK_TOKENS, *terms)
            parts = [plan.part(writer, 0, cut) for writer in plan.fan_in(0, cut)]
            told = [(part.offset, [(block.offset, block.nbytes) for block in part.blocks(cut)]) for part in parts]
            yield f"{tokens}: chunk {k}: {cut.first}, {cut.tokens}, {cut.state}: {plan.grant_bytes(0, cut)}, {told}"


def ring_lines() -> Iterator[str]:
    """Yield regions, marks and what becomes usable, over several rounds."""
    ring, live = Ring(1000), list[int]()
    for size in (400, 300, 500, 200, 900, 100, 1000, 700, 256):
        region = ring.reserve(size)
        if region is not None:
            live.append(region.grant)
            now = usable(region.round, region.end, ring.mark)
            yield f"{size}: {region.round}, {region.offset} to {region.end}, usable {now}, mark {ring.mark}"
        else:
            grant = live.pop(len(live) // 2)
            yield f"{size}: none; {grant} is freed, then {ring.free(grant)}, mark {ring.mark}"
    for grant in live:
        yield f"{grant} is freed, then {ring.free(grant)}, mark {ring.mark}"
    yield f"usable: {[usable(round_, end, mark) for round_, end, mark in product((0, 1, 2), (256, 512), ((0, 256), (1, 512)))]}"


def notification_lines() -> Iterator[str]:
    """Yield the bytes of tags."""
    notes = [(65537, room_key(7, 2), msg.StgNotify(3, 9)), (65537, room_key(8, 0), msg.StgNotify(0, 0))]
    for count in (1, 2):
        yield make_tag(5, 1, notes[:count]).hex()


def timer_lines() -> Iterator[str]:
    """Yield the timers that follow from others, which say when memory is given back."""
    for lease, write in ((30.0, 30.0), (5.0, 60.0)):
        timing = Timing(
            lease=Timer(lease), write=Timer(write), call=Timer(0.5, 10, 8.0), forget=Timer(600.0), stall=Timer(300.0)
        )
        for name in ("return", "welcome", "idle"):
            timer = timing.named(name)
            yield f"lease {lease}, write {write}: {name}: {timer.period} s, {timer.tries} times, to {timer.longest} s"


def fan_in_lines() -> Iterator[str]:
    """Yield the writers of each reader, and the answers of a decode rank to two writers of one chunk."""
    for name, plan in _plans():
        for reader in range(plan.decode.ranks):
            writers = [share.writer for share in plan.writers(reader)]
            yield f"{name}: {reader} is written by {writers}, linked to {plan.linked_to(reader)}, led by {plan.lead(reader)}"
    plan = Plan(_layout(tp=2), _layout(), CHUNK_TOKENS)
    rank = DecodeRank(plan.decode, 0, group=2, chunk_tokens=CHUNK_TOKENS, incarnation=1)
    room, links = room_key(7, 0), []
    for writer in range(2):
        link, _ = rank.call(1, writer, plan, 0.0, f"P{writer}")
        said = msg.Welcome(
            msg.VERSION, "", rank.links[link].session, 5 + writer, 1, writer, plan.prefill, CHUNK_TOKENS, 30.0
        )
        rank.receive(link, 0, 0, said, 0.0)
        links.append(link)
    rank.handle(ev.RoomOpened(room, rank.terms(1, plan), CHUNK_TOKENS, 0), 0.0)
    for body in (msg.Opened(), msg.StagingReq(0), msg.StgNotify(0, 1), msg.Aux(b"row")):
        for writer, link in enumerate(links):
            answers = rank.receive(link, 5 + writer, room, body, 1.0)
            yield f"{type(body).__name__} of {writer}: {', '.join(_told(answers)) or 'nothing'}"


def _told(effects: list[Effect]) -> Iterator[str]:
    for each in effects:
        if isinstance(each, do.Transmit):
            yield f"{type(each.body).__name__} to link {each.link}"
        elif isinstance(each, do.LaunchScatter | do.AnnounceOutcome):
            yield type(each).__name__


LINES = {
    "layout": layout_lines, "ring": ring_lines, "notification": notification_lines, "timers": timer_lines,
    "fan_in": fan_in_lines, "joint": joint_lines,
}  # fmt: skip


def vectors() -> dict[str, dict[str, Any]]:
    """Each agreement with its version and the results of this code."""
    return {name: {"version": version, "results": _results(LINES[name]())} for name, version in AGREEMENTS.items()}


def _results(lines: Iterator[str]) -> list[str]:
    """All lines; where code behind an agreement raises, what it raised is its last result."""
    found: list[str] = []
    try:
        found += lines  # what came before the error stays
    except Exception as error:  # noqa: BLE001  # changed code may raise anything: it is another result
        found.append(f"{type(error).__name__}: {error}")
    return found


def faults(kept: Kept, now: Kept) -> list[str]:
    """Agreements that changed under their version, and those that are not kept, a sentence each."""
    found = []
    for name, said in now.items():
        was = kept.get(name)
        if was is None or was["version"] != said["version"]:
            found.append(f"{name}: version {said['version']} is not kept: run kvproto.verify.cli.versions_command")
        elif was["results"] != said["results"]:
            old, new = next(pair for pair in zip([*was["results"], ""], [*said["results"], ""], strict=False)
                            if pair[0] != pair[1])  # fmt: skip
            remedy = "two builds would take each other for alike: raise its version in AGREEMENTS, or undo the change"
            found.append(f"{name}: {old!r} has become {new!r} and the version is still {said['version']}: {remedy}")
    return found + [f"{name} is no agreement any more" for name in kept if name not in now]


def text(kept: Kept) -> str:
    """The file: a line a result."""
    parts = [f"{json.dumps(name)}: {json.dumps(said, indent=1)}" for name, said in kept.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"
