"""The Triton kernels, run by Triton's interpreter on CPU tensors, against the torch reference's judge.

The interpreter is chosen when Triton and the kernels are imported, by TRITON_INTERPRET in the environment, for the
whole process. So that this neither depends on what other tests import, nor changes how they run, the tests here run
in a process of their own: without the variable, this file is one test, which runs the file again with it.

A third of the interpreter's time is for overflow of 32-bit sums, each of which it makes twice.  Whether one overflows
is a matter of sizes, which are all small here: it looks at some forms of each kernel, and by night at all.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from support.night import NIGHT, by_night

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if not INTERPRETED:

    @pytest.mark.timeout(600)
    def test_under_the_interpreter() -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout

else:
    import torch
    from crossing_cases import ROWS, CrossedCase, check_crossing, check_far_crossing
    from digest_cases import check_digests
    from kernels_cases import (
        BASE,
        PAIRS,
        SHAPES,
        Case,
        check_cells,
        check_far_pages,
        check_gathers,
        check_late_tables,
        check_scatters,
        pool_of,
        same,
        staging,
        table_of,
    )
    from triton.runtime.interpreter import interpreter_builder

    from kvproto.io.kernels import across
    from kvproto.io.kernels.across import AcrossTuning
    from kvproto.io.kernels.base import KernelError, Kernels, Pool
    from kvproto.io.kernels.batch import Batch
    from kvproto.io.kernels.crossing import Crossing, Rows
    from kvproto.io.kernels.digest import new_table, read_table
    from kvproto.io.kernels.torch import TorchKernels
    from kvproto.io.kernels.triton import KernelTuning, TritonKernels
    from kvproto.layout.cut import Cut

    BIND = Batch.bind

    def kernels(**tuning: Any) -> TritonKernels:
        return TritonKernels(KernelTuning(**tuning))

    def small(case: Case) -> int:
        """A tile of which the narrowest part has two to four in a layer, or of 256 bytes, if that is more.

        A program is a millisecond of the interpreter, however much it copies; so tiles grow with the part.
        """
        heads = min(share.heads for share in case.plan.shares)
        layer = heads * max(case.dims) * case.dtype.itemsize * case.tokens
        return max(256, 1 << (layer // 2).bit_length() - 1)

    #: More than a part of most cases has.
    LARGE = 4096
    RUNS = [(case, small(case)) for case in PAIRS + SHAPES] + [(case, LARGE) for case in SHAPES]
    #: by day a quarter is gathered and another quarter scattered: one kernel does both, by a constant
    GATHERED, SCATTERED = (RUNS, RUNS) if NIGHT else (RUNS[::4], RUNS[2::4])

    #: tests of many forms, which look at overflow by night
    MANY = ("test_gather", "test_scatter", "test_digests")

    @pytest.fixture(autouse=True)
    def overflow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whether 32-bit sums are made twice."""
        many = request.function.__name__ in MANY and request.node.callspec.params.get("tile") != LARGE
        if many and not NIGHT:
            options = replace(interpreter_builder.options, sanitize_overflow=False)
            monkeypatch.setattr(interpreter_builder, "options", options)

    @pytest.mark.parametrize(("case", "tile"), GATHERED, ids=str)
    def test_gather(case: Case, tile: int) -> None:
        check_gathers(kernels(tile=tile), case)

    @pytest.mark.parametrize(("case", "tile"), SCATTERED, ids=str)
    def test_scatter(case: Case, tile: int) -> None:
        check_scatters(kernels(tile=tile), case)

    @pytest.mark.parametrize("parts", [5, 8])
    def test_each_of_many_parts_has_its_own_memory(parts: int) -> None:
        check_scatters(kernels(tile=256), replace(BASE, tp=(parts, 1), heads=parts, tokens=3))

    ALONE = [PAIRS[11], PAIRS[0], PAIRS[3], PAIRS[6], SHAPES[6], SHAPES[15]]

    @pytest.mark.parametrize("case", ALONE[: by_night(6, by_day=1)], ids=str)
    def test_each_part_in_programs_of_its_own(case: Case) -> None:
        check_gathers(kernels(tile=small(case), mixed=False), case)
        check_scatters(kernels(tile=small(case), mixed=False), case)

    @pytest.mark.parametrize("case", [SHAPES[8], BASE, SHAPES[5]][: by_night(3, by_day=1)], ids=str)
    def test_with_the_defaults(case: Case) -> None:
        check_gathers(kernels(), case)
        check_scatters(kernels(), case)

    @pytest.mark.parametrize("shift", by_night([1, 2, 4, 8], by_day=[1, 4]))
    def test_staging_at_any_byte(shift: int) -> None:
        check_gathers(kernels(tile=256), BASE, shift=shift)
        check_scatters(kernels(tile=256), BASE, shift=shift)

    #: a program has another number of V's units than of K's, and a row of V is several units
    UNEVEN = replace(BASE, dims=(32, 12))

    JOINED = [PAIRS[2], UNEVEN, SHAPES[5], SHAPES[8], SHAPES[15]]

    @pytest.mark.parametrize("case", JOINED[: by_night(5, by_day=3)], ids=str)
    def test_cells_in_one_launch(case: Case) -> None:
        check_cells(kernels(tile=small(case)), case)

    def test_cells_that_are_too_many_or_differ() -> None:
        made = kernels(tile=1024)
        check_cells(made, replace(BASE, tokens=20), cells=9)
        pool, share = pool_of(BASE.plan.prefill, 0, 8, 1), BASE.plan.duties(0)[0]
        table, nbytes = table_of(8, 4, 11, 1), pool.part_bytes(share, 11)
        outs = [staging(nbytes, shift)[1] for shift in (0, 0, 2)]
        bound = [made.bind("gather", pool, table, 0, 11, [(share, out)]) for out in outs]
        assert made.join(bound[:2]) is None, "nothing was prepared, and none is compiled while others wait"
        made.prepare(pool, "gather", [share])
        assert made.join(bound[:2]) is not None and made.join(bound) is None and made.join([]) is None
        other = made.bind("gather", pool_of(BASE.plan.prefill, 0, 8, 2), table, 0, 11, [(share, outs[0])])
        assert made.join([bound[0], other]) is None

    #: words of four bytes, and a head of two pieces
    COUNTED = [replace(BASE, dims=(6, 10)), replace(BASE, dims=(128, 128), heads=2, tokens=3)]

    @pytest.mark.parametrize("case", (PAIRS[:12:3] + SHAPES + COUNTED)[:: by_night(1, by_day=4)], ids=str)
    def test_digests(case: Case) -> None:
        check_digests(kernels(tile=small(case)), case)

    @pytest.mark.parametrize("case", [replace(COUNTED[0], heads=2, tokens=3), COUNTED[1]], ids=str)
    def test_digests_of_words_of_four_bytes_and_of_heads_in_two_pieces(case: Case) -> None:
        check_digests(kernels(tile=small(case)), case)

    def test_digests_of_more_programs_than_a_table_s_rows_squared() -> None:
        check_digests(kernels(tile=16), replace(BASE, tp=(1, 1), heads=1, layers=1, dims=(8, 0), tokens=260))

    def test_digests_of_more_heads_than_a_tile_has_rows() -> None:
        for dims in ((8, 8), (8, 24)):
            check_digests(kernels(tile=16), replace(BASE, tp=(1, 1), tokens=3, dims=dims))

    def batches(pool: Pool) -> set[int]:
        return {id(batch) for cut in pool._cuts.values() for plans in cut.plans.values() for batch in plans}

    def test_single_calls_do_not_keep_a_joint_one_from_its_own_kernel() -> None:
        plan, made = replace(BASE, heads=8, tp=(1, 4)).plan, kernels()
        pool, shares, table = pool_of(plan.prefill, 0, 8, 1), plan.duties(0), table_of(8, 4, 11, 1)
        parts = [(share, staging(plan.part_bytes(share, Cut(0, 11)))[1]) for share in shares]
        for share, out in parts:
            made.gather(pool, table, 0, 11, share, out)
        before = batches(pool)
        made.gather_parts(pool, table, 0, 11, parts)
        assert (len(before), len(batches(pool))) == (4, 5)

    def test_some_writers_of_many_need_no_kernel_of_their_own() -> None:
        """Once all and each were made, any of the subsets is served by what there is, digests included."""
        case = replace(BASE, heads=8, tp=(4, 1))
        plan, made = case.plan, kernels()
        pools = [pool_of(plan.decode, 0, 8, 1) for _ in range(2)]
        shares, table = plan.writers(0), table_of(8, 4, 11, 1)
        for digests in (False, True):
            made.prepare(pools[0], "scatter", shares, digests=digests)
        parts = [(share, torch.arange(plan.part_bytes(share, Cut(0, 11))).to(torch.uint8)) for share in shares]
        before = batches(pools[0])
        found = [new_table(shares[1:3], table.device) for _ in range(2)]
        made.scatter(pools[0], table, 0, 11, parts[1:3])
        made.scatter(pools[0], table, 0, 11, parts[1:3], digest=found[0])
        TorchKernels().scatter(pools[1], table, 0, 11, parts[1:3], digest=found[1])
        assert len(before) == 10
        assert batches(pools[0]) == before
        assert same(*pools)
        assert read_table(found[0]) == read_table(found[1])

    def test_more_than_a_table_bears() -> None:
        """Beyond 32-bit counting a call is refused before anything is launched."""
        pool = pool_of(BASE.plan.prefill, 0, 2, 1)
        share = BASE.plan.duties(0)[0]
        table = torch.zeros(1, dtype=torch.int64).expand(2**30)
        with pytest.raises(KernelError, match="dense"):
            kernels().gather(pool, table, 0, 1, share, staging(pool.part_bytes(share, 1))[1])
        table = table_of(2, 4, 8, 1)
        with pytest.raises(KernelError, match="of a table of 2 pages"):
            kernels().gather(pool, table, 2**31, 8, share, staging(pool.part_bytes(share, 8))[1])

    def test_of_two_threads_that_make_the_same_the_first_one_s_stays(monkeypatch: pytest.MonkeyPatch) -> None:
        made, both = kernels(), Barrier(2, timeout=30)
        pool, share = pool_of(BASE.plan.prefill, 0, 8, 1), BASE.plan.duties(0)[0]
        table, out = table_of(8, 4, 11, 1), staging(pool.part_bytes(share, 11))[1]
        used: list[int] = []

        def meet(*given: Any, **named: Any) -> Batch:
            both.wait()
            return Batch(*given, **named)

        def bind(self: Batch, *given: Any) -> Any:
            used.append(id(self))
            return BIND(self, *given)

        monkeypatch.setattr("kvproto.io.kernels.triton.Batch", meet)
        monkeypatch.setattr(Batch, "bind", bind)
        other = Thread(target=made.prepare, args=(pool, "gather", [share]))
        other.start()
        made.gather(pool, table, 0, 11, share, out)
        other.join(30)
        made.gather(pool, table, 0, 11, share, out)
        assert set(used) == batches(pool)
        assert len(used) == 2 and not both.broken

    def test_prepared_or_not_is_the_same() -> None:
        made = kernels(tile=256)
        pool, share = pool_of(BASE.plan.prefill, 0, 8, 1), BASE.plan.duties(0)[0]
        made.prepare(pool, "gather", [share])
        table = table_of(8, 4, 11, 1)
        outs = [staging(pool.part_bytes(share, 11))[1] for _ in range(2)]
        made.gather(pool, table, 0, 11, share, outs[0])
        kernels(tile=512).gather(pool, table, 0, 11, share, outs[1])
        assert torch.equal(*outs)

    @pytest.mark.parametrize("order", ["NHD", "HND"])
    @pytest.mark.parametrize("case", ROWS, ids=str)
    def test_a_copy_into_pages_that_are_mapped_is_the_hosts_copy(case: CrossedCase, order: str) -> None:
        check_crossing(TritonKernels(across=AcrossTuning(128, 1, 5)), case, order)

    @pytest.mark.parametrize("side", ["gather", "scatter"])
    def test_page_ids_need_more_than_sixteen_bits(side: str) -> None:
        check_far_pages(kernels(), side)

    @pytest.mark.parametrize(
        "kernels", [TorchKernels(), TritonKernels(across=AcrossTuning(128, 1, 5))], ids=["host", "triton"]
    )
    def test_page_tables_are_read_by_the_launch(kernels: Kernels) -> None:
        check_late_tables(kernels)

    @pytest.mark.parametrize(
        "kernels", [TorchKernels(), TritonKernels(across=AcrossTuning(128, 1, 5))], ids=["host", "triton"]
    )
    def test_page_ids_of_a_crossing_need_more_than_sixteen_bits(kernels: Kernels) -> None:
        check_far_crossing(kernels)

    def test_what_the_kernel_of_a_crossing_is_told_and_what_is_too_much_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
        forms, told = list[tuple[Any, ...]](), list[tuple[Any, ...]]()

        def launcher(place: int, function: Any, arguments: int, constants: tuple[int, ...], warps: int) -> Any:
            assert (place, function, arguments) == (-1, across.across, len(across.RUN_TIME))
            forms.append((constants, warps))
            return lambda *given: told.append(given)

        monkeypatch.setattr(across, "compile_kernel", launcher)

        def made(crossing: Crossing, **tuning: int) -> Any:
            return across.PagesAcross(crossing, torch.device("cpu"), AcrossTuning(**tuning))

        near, far = Rows(4096, 512, 128, 8), Rows(2048, 512, 128, 4)
        strided = made(Crossing(64, 3, near, far, ((1 << 20, 1 << 21), (4096, 8192))), tile=64, warps=4, programs=5)
        # a unit of 32 bytes, two in a row, a tile has two; three heads are three groups
        assert forms == [((8, 4096, 512, 128, 4, 3, 32, 2, 2, 8, 16), 4)]
        strided.bind(111, 222, 10, 20)(7)
        # pages there from the third on; 120 units are 60 tiles a plane
        assert told == [(5, 1, 1, 7, strided._table.data_ptr(), 111, 222, 10, 20, 2, 60, 120, 5, 2048, 512, 128)]
        assert strided._table.tolist() == [1 << 20, 1 << 21, 4096, 8192]
        strided.bind(111, 222, 0, 1)(7)
        assert told[1][:4] == (5, 1, 1, 7) and told[1][9:13] == (0, 3, 6, 5)
        strided.bind(111, 222, 0, 1, percent=1)(7)
        assert told.pop()[0] == 1, "one program at least"
        rows = Rows(1 << 16, 4096, 512, 16)
        dense = made(Crossing(512, 8, rows, rows, ((16, 32),)), programs=64)
        assert forms[1] == ((16, 1 << 16, 4096, 4096, 16, 1, 4096, 1, 8, 8, 16), 16)
        dense.bind(1, 2, 0, 3)(0)
        assert told[2][0] == 1, "no more programs than tiles"
        for at, align in ((8, 8), (4, 4), (6, 2), (1, 1)):
            made(Crossing(64, 3, near, far, ((4096, 4096 + at),)))
            assert forms[-1][0][-2:] == (min(align, 8), align)
        for other, align in ((Rows(4100, 512, 128, 8), 4), (Rows(4096, 514, 128, 8), 2), (Rows(4096, 512, 129, 8), 1)):
            for sides in ((near, other), (other, near)):
                made(Crossing(64, 3, *sides, ((0, 0),)))
                assert forms[-1][0][-1] == align
        rows, most = Rows(256, 32, 32, 8), 1 << 31
        apart = Rows(512, 64, 64, 8)
        for heads, planes, fits in ((1, 1, most - 1), (2, 1, most // 2 - 1), (1, 4, most // 2 - 2)):
            side = rows if heads == 1 else apart
            copy = made(Crossing(32, heads, side, side, ((0, 0),) * planes), tile=64)
            copy.bind(1, 2, 0, fits)
            with pytest.raises(KernelError, match="too many for one call"):
                copy.bind(1, 2, 0, fits + 1)
        last = made(Crossing(32, 1, rows, rows, ((0, 0),)), tile=64)
        last.bind(1, 2, most - 2, 1)
        with pytest.raises(KernelError, match="too many for one call"):
            last.bind(1, 2, most - 1, 1)

    def test_heads_are_one_run_if_they_are_on_both_sides() -> None:
        tight, loose = Rows(512, 64, 32, 8), Rows(1024, 128, 64, 8)
        for row, heads, ours, theirs, dense in (
            (32, 2, tight, tight, True), (32, 2, tight, loose, False), (32, 2, loose, tight, False),
            (32, 2, loose, loose, False), (32, 1, tight, loose, True), (32, 1, loose, loose, True),
        ):  # fmt: skip
            assert Crossing(row, heads, ours, theirs, ()).dense is dense

    def test_a_peer_whose_strides_are_others_has_nothing_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
        near, pool, made = Rows(512, 64, 32, 8), Pool([torch.zeros((1, 1, 1, 1))], []), list[Any]()
        forms = [Crossing(32, 2, near, Rows(512 * more, 64 * more, 32, 8), ((0, 0),)) for more in range(1, 9)]
        monkeypatch.setattr(across, "compile_kernel", lambda *given: made.append(given))
        TritonKernels().cross(pool, forms)
        assert len(made) == len(forms) and len(set(made)) == 1, "Triton finds what it has compiled"
