"""Verify bit for bit: P's computed bytes, D's and the unsharded model's must be the same.

Every process reports, for a room, the bytes of each (layer, K or V, head) it holds, tokens in order, whatever its
pages, its order in them and its share of heads and layers: a `Sheet`. Bytes are compared, not digests of them, so a
difference can be named down to the token; they go through a pipe beside the protocol, which is the point: nothing
that the transfer itself says is used to judge it.

A (layer, kind, head) that several ranks hold must be the same in all; one that no rank holds is a difference too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Kind = str  # "k" or "v", or the part of a named cache: "state.ssm"
Sheet = dict[tuple[int, Kind, int], bytes]  # (layer, kind, head) of the whole model -> rows * bytes of a row


@dataclass(frozen=True)
class Verdict:
    """The unsharded model's word on a room: tokens, digests of their logits, KV of the prompt.

    `library` is None where the library's own tokens were not asked for; `seconds` from its beginning to each token;
    `rows`: those of each kind in `sheet`.
    """

    tokens: list[int]
    logits: list[bytes]
    sheet: Sheet
    library: list[int] | None
    seconds: tuple[float, ...] = ()
    rows: Mapping[Kind, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ByteDifference:
    """A place where `holder` lacks the expected bytes: `rows` differ there, `first` first."""

    holder: str
    room: int
    layer: int
    kind: Kind
    head: int
    first: int
    rows: int

    def __str__(self) -> str:
        named = "." in self.kind
        part = f"{self.kind} unit" if named else f"{self.kind.upper()} head"
        place = f"layer {self.layer} {part} {self.head}"
        if self.first < 0:
            return f"room {self.room}: nobody of {self.holder} holds {place}"
        which = f"in {self.rows} {'rows' if named else 'tokens'}, the first of them {self.first}"
        return f"room {self.room}: {self.holder} differs in {place} {which}"


def compare(
    room: int, rows: Mapping[Kind, int], truth: Sheet, holders: Mapping[str, Sheet], group: str
) -> list[ByteDifference]:  # fmt: skip
    """Return all differences between `truth`, with so many rows of each kind, and one group's ranks."""
    found: list[ByteDifference] = []
    for (layer, kind, head), right in truth.items():
        having = {name: sheet[layer, kind, head] for name, sheet in holders.items() if (layer, kind, head) in sheet}
        if not having:
            found.append(ByteDifference(group, room, layer, kind, head, -1, rows[kind]))
        for name, held in having.items():
            if held != right:
                wrong = unequal_rows(right, held, rows[kind])
                found.append(ByteDifference(name, room, layer, kind, head, wrong[0], len(wrong)))
    return found


def unequal_rows(a: bytes, b: bytes, rows: int) -> list[int]:
    """Return which of `rows` equal pieces of `a` and `b` differ; all of them if the lengths do."""
    if len(a) != len(b) or len(a) % rows:
        return list(range(rows))
    size = len(a) // rows
    return [r for r in range(rows) if a[r * size : (r + 1) * size] != b[r * size : (r + 1) * size]]


class ReferenceJudge:
    """The unsharded model's verdicts on all rooms, and what contradicts them, as sentences."""

    def __init__(self) -> None:
        self.verdicts: dict[int, Verdict] = {}

    def learn(self, room: int, verdict: Verdict) -> list[str]:
        """Take a verdict; complain if the library's own generation does not agree with it."""
        self.verdicts[room] = verdict
        if verdict.library is None:
            return []
        return _tokens_differ(f"room {room}: the library's own generation", verdict.tokens, verdict.library)

    def kv(self, group: str, room: int, sheets: Mapping[str, Sheet]) -> list[str]:
        """Return what is wrong with the prompt's KV in one group's ranks, by name; all of them are needed."""
        verdict = self.verdicts[room]
        found = compare(room, verdict.rows, verdict.sheet, sheets, group)
        return [str(difference) for difference in found]

    def said(self, name: str, room: int, rows: Sequence[tuple[int, bytes]], due: int) -> list[str]:
        """Return what is wrong with the first `due` generated (token, digest of its logits)."""
        who, verdict = f"room {room}: {name}", self.verdicts[room]
        wrong = _tokens_differ(who, verdict.tokens[:due], [token for token, _ in rows])
        both = enumerate(zip(verdict.logits, (digest for _, digest in rows), strict=False))
        return wrong + [f"{who}: logits of token {n} differ" for n, (a, b) in both if a != b]


def _tokens_differ(who: str, right: Sequence[int], got: Sequence[int]) -> list[str]:
    if list(right) == list(got):
        return []
    both = enumerate(zip(right, got, strict=False))
    at = next((n for n, (a, b) in both if a != b), min(len(right), len(got)))
    return [f"{who} differs from token {at} on: {right[at : at + 4]} expected, {got[at : at + 4]} generated"]
