"""Whole worlds: what only two by two ranks with two rooms of two chunks could do, and why it does not.

That world is not searched, so of each thing that takes two rooms, and both ranks of both sides, it is said which lemmas
exclude it, for any number of either; and of lemmas that are open, in which bounded worlds they are looked at instead,
with as many states as `spec/counts.toml` and `spec/deep-counts.toml` have of these.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kvproto.verify.claims.open_lemmas import OPEN
from kvproto.verify.draw.checked_worlds import DEEP, Counts, golden
from kvproto.verify.framework.draw.tables import table_md


class Crossing(NamedTuple):
    """A possible crossing; `proved`: `what is proved: claim or lemma`; `left`: open lemmas."""

    what: str
    proved: tuple[str, ...]
    left: tuple[str, ...] = ()


CROSSINGS = (
    Crossing("a write that is under way when its region goes to another room's chunk",
             ("ends: frees_what_is_not_written", "ends: lands_in_its_own_region", "ring: overlap", "lease: lost-link")),
    Crossing("a part that is counted for another room, chunk or writer",
             ("routes: speaks_of_the_grant", "keys: events", "keys: machines",
              "decode_grant: counts_what_came_as_agreed"),
             ("messages_by_key",)),
    Crossing("a scatter, or success, while a part of another prefill rank is missing",
             ("ends: scatters_what_is_in_place", "rooms: success_is_in_place")),
    Crossing("a chunk that is sent, granted or written twice, because two rooms' failures and losses meet",
             ("prefill_room: opens_each_chunk_once", "decode_room: one_grant_a_chunk", "ends: writes_once")),
    Crossing("prefill's success while one of its decode ranks lacks a part",
             ("prefill_room: success_is_all_of_it", "prefill_send: ends_well", "ends: arrived_is_in_place")),
    Crossing("pages that are given back while one of two prefill ranks is at work on them",
             ("decode_room: released_when_nobody_writes", "rooms: is_not_at_work_on_what_was_given_back"),
             ("ended_rooms_stay_ended",)),
    Crossing("a lost link that ends the other rank's rooms, or comes back to a room of before",
             ("prefill_room: ends_with_its_own_links", "rooms: works_in_the_epoch_of_the_open",
              "routes: hears_by_its_link")),
    Crossing("a slot, credit or permit that two sends take for theirs, or that nobody gets any more",
             ("prefill_send: ends_when_nothing_works", "prefill_send: works_with_what_it_has",
              "prefill_send: gives_back_before_it_takes"), ("shared_things",)),
    Crossing("a circle: a room has a slot and waits for a ring that another has, who waits for the slot",
             ("prefill_room: has_its_time_for_progress_alone", "decode_room: has_its_time_for_progress_alone",
              "prefill_send: works_with_what_it_has", "prefill_send: gives_the_ring_up_in_time", "ring: in-order"),
             ("everything_ends",)),
    Crossing("effects of two rooms that are carried out otherwise than they say", (), ("handlers",)),
)  # fmt: skip
WORLDS = {each.name: each.worlds for each in OPEN}


def searched(lemma: str) -> Counts:
    """The worlds in which an open lemma is looked at, of which there are numbers."""
    every = golden() | golden(DEEP)
    return {name: each for name, each in every.items() if any(re.fullmatch(asked, name) for asked in WORLDS[lemma])}


def whole_world_md() -> str:
    """Each thing, what excludes it, what is open, and how much is searched for that."""
    rows = []
    for each in CROSSINGS:
        found = {name: counts for lemma in each.left for name, counts in searched(lemma).items()}
        states = sum(counts["states"] for counts in found.values())
        much = f"{len(found)} worlds, {states:,} states" if found else "their own worlds" if each.left else ""
        names = [", ".join(f"`{name}`" for name in said) for said in (each.proved, each.left)]
        rows.append((each.what, *names, much))
    return table_md(("what could happen", "excluded for any number by", "open", "for that are searched"), rows)
