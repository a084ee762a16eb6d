"""The meetings and writers of ranks by arithmetic equal those found by a look at every pair."""

from __future__ import annotations

from itertools import product

import pytest

from kvproto.layout.contacts import Contacts, Group, Share
from kvproto.layout.sharding import Interval, Layout

#: places and stages of 7 layers and 4 heads; stages that are not named are as near to equal as can be
SHAPES = [(1, 1, ()), (2, 1, ()), (4, 2, ()), (1, 3, ()), (2, 3, (1, 4, 2)),
          (8, 2, (5, 2)), (12, 1, ()), (1, 7, ()), (8, 3, ())]  # fmt: skip
PAIRS = [*product(SHAPES, repeat=2)]


def group(tp: int, pp: int, stages: tuple[int, ...]) -> Layout:
    return Layout(7, 4, 2, 2, 2, "bits", 16, tp, pp, stages=stages)


def common(ours: Interval, theirs: Interval) -> tuple[int, int, int]:
    """First of the common ones on either side, and how many they are."""
    both = sorted({*range(ours[0], sum(ours))} & {*range(theirs[0], sum(theirs))})
    return (both[0] - ours[0], both[0] - theirs[0], len(both)) if both else (0, 0, 0)


def looked_at(prefill: Layout, decode: Layout) -> dict[tuple[int, int], Share]:
    """Each pair of ranks that have anything in common, replicas included."""
    found = {}
    for writer, reader in product(range(prefill.ranks), range(decode.ranks)):
        heads = common(prefill.heads_of(writer), decode.heads_of(reader))
        layers = common(prefill.layers_of(writer), decode.layers_of(reader))
        if heads[2] and layers[2]:
            found[writer, reader] = Share(writer, reader, *heads, *layers)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_a_group_s_ends_and_replicas_are_those_of_its_ranks(shape: tuple[int, int, tuple[int, ...]]) -> None:
    layout = group(*shape)
    ours = Group(layout)
    held = [(layout.heads_of(rank), layout.layers_of(rank)) for rank in range(layout.ranks)]
    assert [ours.holding(rank) for rank in range(layout.ranks)] == held
    assert list(ours.ends) == sorted({sum(layers) for _, layers in held})
    assert [ours.first_copy(rank) for rank in range(layout.ranks)] == [held.index(each) for each in held]
    assert ours.copies == max(map(held.count, held))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_those_meet_who_have_anything_in_common(
    ours: tuple[int, int, tuple[int, ...]], theirs: tuple[int, int, tuple[int, ...]]
) -> None:
    prefill, decode = group(*ours), group(*theirs)
    contacts, pairs = Contacts(prefill, decode), looked_at(prefill, decode)
    for writer in range(prefill.ranks):
        readers = contacts.readers(writer)
        wanted = [reader for reader in range(decode.ranks) if (writer, reader) in pairs]
        assert list(readers) == wanted == [reader for reader in range(decode.ranks) if reader in readers]
        assert [readers.turn(reader) for reader in wanted] == list(range(len(wanted)))
    for reader in range(decode.ranks):
        wanted = [writer for writer in range(prefill.ranks) if (writer, reader) in pairs]
        assert list(contacts.writers(reader)) == wanted
    assert contacts.fewest_layers() == min(share.layers for share in pairs.values())


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_of_replicas_one_writes_to_a_reader_and_they_take_turns(
    ours: tuple[int, int, tuple[int, ...]], theirs: tuple[int, int, tuple[int, ...]]
) -> None:
    prefill, decode = group(*ours), group(*theirs)
    contacts, pairs, copies = Contacts(prefill, decode), looked_at(prefill, decode), Group(prefill).copies
    owed = [share for writer in range(prefill.ranks) for share in contacts.owed_by(writer)]
    assert all(pairs[share.writer, share.reader] == share for share in owed)
    for reader in range(decode.ranks):
        mine = [share for share in owed if share.reader == reader]
        assert sorted(contacts.owed_to(reader), key=lambda share: share.writer) == mine
        stage = max(share.writer // prefill.tp for share in mine)
        assert contacts.lead(reader) == min(share.writer for share in mine if share.writer // prefill.tp == stage)
        for share in mine:
            first = share.writer - share.writer % prefill.tp % copies
            readers = [other for other in range(decode.ranks) if (first, other) in pairs]
            assert share.writer == first + readers.index(reader) % copies
    held = [(share.reader, prefill.heads_of(share.writer), prefill.layers_of(share.writer)) for share in owed]
    assert len(held) == len({*held}) == len({(reader, *contacts.prefill.holding(writer)) for writer, reader in pairs})
