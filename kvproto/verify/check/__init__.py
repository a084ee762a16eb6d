"""The checker: every behaviour of small worlds, driven through the very ranks that run in production.

`config` says what a world is; `nodes_prefill` and `nodes_decode` put a rank, its engine, its kernels and its memory
into a value; `network` does so for a link; `world` puts these together; `search` walks; `liveness` asks whether every
way ends; `story` tells what went wrong; `mutations` ask whether the checker would notice.
"""
