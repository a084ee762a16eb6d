"""The torture bench: engines in processes of their own, every kind of fault, and a judge.

    fleet       who takes part: two prefill groups, two decode groups, their layouts, timers and clocks (plain values)
    plan        what happens: rooms and what each engine does with them, faults; a pure function of the seed
    zmtp        the control plane's bytes, cut into frames
    proxy       the process between the control sockets: delays, doubles, mixes up, loses, cuts, holds
    memory      a rank's pages: whose they are, what must be in them, what must not have changed
    kernels     gathers and scatters that are slow, or fail
    engine      the engine of one rank: it does what the plan says, and judges every byte that it is given
    rank        the process of one rank: endpoint, engine, and the line to the parent
    faults      faults that strike ranks and links, carried out and taken back
    verdicts    what a room's outcomes may be, given what was done to it (pure)
    ledger      the parent's account of rooms: who has opened them, who was told what
    conduct     the parent: opens rooms, has faults strike, waits until all is healed, judges
    soak        rooms without end over one link, and the memory that it takes
    report      what a person sees

What counts as right is told in `verdicts`; how much of everything there is in `plan.SIZES`.
"""
