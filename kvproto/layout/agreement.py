"""Agreement: refuses, by name, two layouts or a chunk size that do not go together."""

from __future__ import annotations

from math import lcm
from typing import Final

from kvproto.layout.caches import differing_caches
from kvproto.layout.sharding import Layout, LayoutError, Reason

MAX_CHUNK_TOKENS: Final = (1 << 32) - 1  #: tokens a cell; no room has more
_AGREED: Final[tuple[tuple[str, Reason], ...]] = (
    ("layers", "layers-differ"),
    ("heads", "heads-differ"),
    ("k_dim", "k-dim-differs"),
    ("v_dim", "v-dim-differs"),
    ("itemsize", "itemsize-differs"),
    ("dtype", "dtype-differs"),
)


def agree(prefill: Layout, decode: Layout, chunk_tokens: int) -> None:
    """Raise `LayoutError` unless both layouts are of one model and chunks are whole pages of both."""
    for side, layout in (("prefill", prefill), ("decode", decode)):
        if not isinstance(layout, Layout):
            raise LayoutError("bad-field", f"the {side} side's layout is {layout!r}; it must be a Layout")
    if isinstance(chunk_tokens, bool) or not isinstance(chunk_tokens, int):
        raise LayoutError("bad-field", f"chunk_tokens is {chunk_tokens!r}; it must be a whole number of tokens")
    if why := differing_caches(prefill.named, decode.named):
        raise LayoutError("caches-differ", why)
    for name, reason in _AGREED:
        ours, theirs = getattr(prefill, name), getattr(decode, name)
        if ours != theirs:
            raise LayoutError(reason, f"{name} is {ours} on the prefill side and {theirs} on the decode side")
    if not 1 <= chunk_tokens <= MAX_CHUNK_TOKENS:
        most = f"it must be whole pages of both sides, up to {MAX_CHUNK_TOKENS}"
        raise LayoutError("chunk-tokens-not-positive", f"chunk_tokens is {chunk_tokens}; {most}")
    if chunk_tokens % prefill.page_size or chunk_tokens % decode.page_size:
        pages = f"pages of {prefill.page_size} (prefill) and {decode.page_size} (decode)"
        remedy = f"take a multiple of {lcm(prefill.page_size, decode.page_size)}"
        raise LayoutError(
            "chunk-tokens-not-whole-pages", f"chunks of {chunk_tokens} tokens are not whole {pages}: {remedy}"
        )
