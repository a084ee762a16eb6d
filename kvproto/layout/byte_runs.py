"""The byte runs of one share in one cell, page to page: what the slice and the direct route write.

A pool is one tensor a layer for K and one for V, ``[page, token, head, dim]`` (NHD) or ``[page, head, token, dim]``
(HND). Its regions are numbered from 1: K of local layer i is ``1 + i``, V of it ``1 + layers + i``, with as many local
layers as that rank holds; region 0 is the staging ring. Offsets count bytes from the start of a region.

All planes (a layer's K or V) of a share look alike up to the size of a row, the ``dim`` elements of one head at one
token. So rows are walked and merged once, in units of rows, and the result is scaled for each plane. Two rows join
when they adjoin on *both* sides. The walk decides which rows can: token by token as a rule; where both sides keep a
head's tokens together, head by head within the tokens that share a page on both sides. Along the
tables' order of pages this walk misses no join, and a direct share comes out as whole pages, or runs of them.

This is the definition, row by row in plain Python. `kvproto.layout.byte_runs_numpy` computes the same with numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError

Descriptor = tuple[int, int, int, int, int]  #: (source region, source offset, target region, target offset, bytes)


def descriptors(
    plan: Plan, share: Share, src_table: Sequence[int], dst_table: Sequence[int], first: int, tokens: int
) -> Iterator[Descriptor]:
    """The byte runs of `share` for the tokens ``[first, first + tokens)``, plane by plane, merged.

    The tables hold the page ids of the whole room on each side: token t lies in page ``table[t // page_size]``.
    Raises `LayoutError` if a table ends before the tokens or names a negative page.
    """
    covered(plan.prefill, src_table, first, tokens)
    covered(plan.decode, dst_table, first, tokens)
    runs = list(_runs(plan, share, src_table, dst_table, first, tokens))
    for src_region, dst_region, row in planes(plan, share):
        for source, target, rows in runs:
            yield src_region, source * row, dst_region, target * row, rows * row


def planes(plan: Plan, share: Share) -> list[tuple[int, int, int]]:
    """(source region, target region, bytes a row) of each plane of the share: K of its layers, then V of them."""
    sizes = [dim * plan.prefill.itemsize for dim in (plan.prefill.k_dim, plan.prefill.v_dim)]
    ours, theirs = plan.prefill.layers_of(share.writer)[1], plan.decode.layers_of(share.reader)[1]
    return [
        (1 + which * ours + share.src_layer + layer, 1 + which * theirs + share.dst_layer + layer, size)
        for which, size in enumerate(sizes)
        if size
        for layer in range(share.layers)
    ]


def covered(layout: Layout, table: Sized, first: int, tokens: int) -> tuple[int, int]:
    """(first, end) of the table's entries that hold the tokens; refuses a table that does not reach them."""
    if first < 0 or tokens < 0:
        raise LayoutError("negative-tokens", f"{tokens} tokens from token {first}; take both from cell()")
    begin, end = first // layout.page_size, -((first + tokens) // -layout.page_size)
    if end > len(table):
        size = f"{len(table)} pages of {layout.page_size}"
        raise LayoutError("table-too-short", f"{size} end before token {first + tokens}; pass the whole room's table")
    return begin, end


def by_head(plan: Plan) -> bool:
    """Whether both sides keep the tokens of a head together in a page, so that the walk goes head by head."""
    return plan.prefill.order == plan.decode.order == "HND"


def _runs(
    plan: Plan, share: Share, src_table: Sequence[int], dst_table: Sequence[int], first: int, tokens: int
) -> Iterator[tuple[int, int, int]]:
    """(source row, target row, rows) of each maximal run along the walk."""
    source = target = rows = 0
    for token, head in _walk(plan, share, first, tokens):
        ours = _row(plan.prefill, src_table, token, share.src_head + head)
        theirs = _row(plan.decode, dst_table, token, share.dst_head + head)
        if rows and (ours, theirs) == (source + rows, target + rows):
            rows += 1
            continue
        if rows:
            yield source, target, rows
        source, target, rows = ours, theirs, 1
    if rows:
        yield source, target, rows


def _walk(plan: Plan, share: Share, first: int, tokens: int) -> Iterator[tuple[int, int]]:
    """(token, head of the share) in the order in which rows can join."""
    token, end = first, first + tokens
    while token < end:
        stop = min(end, token + 1)
        if by_head(plan):
            stop = min(end, *(size - token % size + token for size in (plan.prefill.page_size, plan.decode.page_size)))
        yield from ((each, head) for head in range(share.heads) for each in range(token, stop))
        token = stop


def _row(layout: Layout, table: Sequence[int], token: int, head: int) -> int:
    """Which row of the pool tensor holds the token of that local head."""
    index, slot = divmod(token, layout.page_size)
    page = int(table[index])
    if page < 0:
        raise LayoutError("negative-page", f"entry {index} of the page table is {page}; pages count from 0")
    if layout.order == "NHD":
        return (page * layout.page_size + slot) * layout.local_heads + head
    return (page * layout.local_heads + head) * layout.page_size + slot
