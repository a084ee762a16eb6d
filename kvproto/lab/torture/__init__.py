"""The torture bench: engines in processes of their own, every kind of fault, and a judge.

`plan` says what happens, from the seed alone; `conduct`, the parent, opens rooms, has `faults` and the `proxy` between
the control sockets strike, waits until all is healed, and judges; `engine` and `rank` are the processes that do it.
What counts as right is told in `verdicts`; how much of everything there is in `plan.SIZES`.
"""
