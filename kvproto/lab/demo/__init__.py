"""The demonstration: carry a real transformer's KV cache between processes of different tensor
parallelism.

    job       what is run: model, groups, rooms (plain values; no torch)
    model     the transformer, its per-head attention, and the unsharded reference that judges everything
    pages     a rank's paged pool and the allocator that scatters it
    shard     an engine rank: chunked prefill into pages, greedy continuation from pages
    comm      the collectives inside a group (gloo, loopback)
    rank      a rank but for its endpoint: shard, page tables, reports
    run       how the job is carried: passes, ring, aborts (plain values)
    place     which process is on which device
    player    the engine's side of an endpoint; prefiller, decoder: what a rank of either side does with it
    tally     what happened in a pass, counted from the traces; times: the way to the first continued token
    conduct   the parent: starts, passes on, judges
    matrix    the cases; report, command: what a person sees and types
    oracle    the judge's process
    verify    bit-for-bit comparison of what the processes report (no torch)
    controls  what must not have changed, and the corruptions that must be found

The parent process imports neither torch nor transformers: a warmed fork server does, once, for all ranks.
"""
