"""Sides: the ranks of each group, and the two groups of each room.

The ranks of a side are counted through all of its groups, so a rank has one number in a world (`P3`), and its group and
its place in it are worked out from that.  The groups of one side are alike, and every decode group is linked to every
prefill group.

Rooms go round: the first few are each between two groups that no other of them has anything to do with, so they may
have one id, and do (`ids`); the next few pair the same groups in another way, and have the next id.
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple


class Side(NamedTuple):
    """One side's ranks in a world: `groups` of so many `ranks`, the first of which is `number`.

    `one_name`: all have that number, as instances that were given one name by mistake.
    """

    number: int
    ranks: int
    groups: int = 1
    one_name: bool = False

    @property
    def everyone(self) -> int:
        return self.ranks * self.groups

    def group(self, index: int) -> int:
        """The number of the rank's group; those of the two sides differ."""
        return self.number if self.one_name else self.number + 2 * (index // self.ranks)

    def first(self, group: int) -> int:
        return (group - self.number) // 2 * self.ranks

    def member(self, index: int) -> int:
        return index % self.ranks


def parties(k: int, prefill: Side, decode: Side) -> tuple[int, int]:
    """The prefill and the decode group of room `k`, counted from 0."""
    return k % prefill.groups, (k + k // lcm(prefill.groups, decode.groups)) % decode.groups


def ids(prefill: Side, decode: Side) -> int:
    """So many rooms that follow each other have one id: no group has two of them."""
    return min(prefill.groups, decode.groups)
