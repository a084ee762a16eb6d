"""The demonstration: carry a real transformer's KV cache between groups of other tensor parallelism.

`conduct`, the parent, starts ranks and judges; `prefiller` and `decoder` are what a rank of either side does with its
endpoint; `oracle` runs every room unsharded, and `verify` compares bits. `caches_*` is the same for models with several
caches. The parent imports neither torch nor transformers: a warmed fork server does, once, for all ranks.
"""
