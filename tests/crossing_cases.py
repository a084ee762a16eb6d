"""Crossings' cases: a share goes from pages here into pages there, and the host's copy is the judge."""

from __future__ import annotations

import torch

from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.crossing import Crossing, Rows
from kvproto.io.kernels.torch import TorchKernels

CrossedCase = tuple[int, int, int, int, int]
#: page sizes here and there, heads of the share, and its first head here and there
ROWS: tuple[CrossedCase, ...] = ((4, 4, 4, 0, 0), (4, 8, 2, 1, 2), (8, 4, 1, 3, 0), (4, 4, 3, 1, 0))


def check_crossing(kernels: Kernels, case: CrossedCase, order: str, device: str = "cpu") -> None:
    """Two planes of four heads of 32 bytes; the tokens, from the second page on, are two joined launches."""
    ours, theirs, heads, source, target = case

    def rows(size: int) -> Rows:
        return Rows(size * 4 * 32, 128 if order == "NHD" else 32, 32 if order == "NHD" else size * 32, size)

    near, far = rows(ours), rows(theirs)
    held = [torch.randint(-99, 99, (9, ours * 64), dtype=torch.int16) for _ in range(2)]
    there = [[torch.zeros((12, theirs * 64), dtype=torch.int16, device=on) for _ in held] for on in ("cpu", device)]
    table, pages = torch.randperm(9), torch.randperm(12)[ours // theirs :].to(torch.int32).view(torch.uint8)
    for judged, into, on in zip((TorchKernels(), kernels), there, ("cpu", device), strict=True):
        pools = [each.to(on) for each in held]
        planes = tuple(
            (a.data_ptr() + source * near.head, b.data_ptr() + target * far.head)
            for a, b in zip(pools, into, strict=True)
        )
        copy = judged.cross(Pool([torch.zeros((1, 1, 1, 1), device=on)], []), [Crossing(32, heads, near, far, planes)])
        assert copy is not None
        later = (ours + 12) // theirs - ours // theirs
        bound = [
            copy.bind(table.to(on), pages.to(on)[4 * page :], first, tokens)
            for page, first, tokens in ((0, ours, 12), (later, ours + 12, 8))
        ]
        joined = judged.join(bound)
        assert (joined is None) is isinstance(judged, TorchKernels)
        tickets = [launch(None, None) for launch in ([joined] if joined is not None else bound)]
        while not all(ticket.done() for ticket in tickets):
            continue
    assert all(torch.equal(one, other.cpu()) for one, other in zip(*there, strict=True))
    assert all(0 < int(each.ne(0).sum()) <= 20 * heads * 16 for each in there[0])


def check_far_crossing(kernels: Kernels, device: str = "cpu") -> None:
    """Pages whose ids differ in their upper bits alone."""
    near, far = (torch.zeros((70_000, 16), dtype=torch.uint8, device=device) for _ in range(2))
    table, pages = torch.tensor([65_540, 5, 69_999]), torch.tensor([69_998, 4_462, 65_541], dtype=torch.int32)
    near[table.to(device)] = torch.randint(1, 255, (3, 16), dtype=torch.uint8, device=device)
    rows = Rows(16, 16, 16, 1)
    pool = Pool([torch.zeros((1, 1, 1, 1), device=device)], [])
    copy = kernels.cross(pool, [Crossing(16, 1, rows, rows, ((near.data_ptr(), far.data_ptr()),))])
    assert copy is not None
    ticket = copy.bind(table.to(device), pages.to(device).view(torch.uint8), 0, 3)(None, None)
    while not ticket.done():
        continue
    assert torch.equal(far[pages.long().to(device)], near[table.to(device)]) and int(far.any(1).sum()) == 3
