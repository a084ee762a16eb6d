"""Windows: SGLang's pool of layers that look back over so many tokens, where these are known.

Such layers have a pool and pages of their own.  SGLang names the pages from the one with token `tokens - window`, or of
the end of decode's prefix if that is later, to the prompt's last, at prefill with the last chunk and at decode with all
pages.  It tells a transfer backend neither the window nor the layers, so the model's configuration does.

A room is whole pages of both sides long, and so longer than the prompt; its window is `SLACK` tokens longer, too, so
that it has all pages which SGLang names.  What it has beside them is page 0, which SGLang keeps for what nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kvproto.errors import ArgumentError

#: tokens that the two sides' pages may add to a prompt, where both have such as divide this
SLACK = 64


class Window(msgspec.Struct, frozen=True):
    """The layers of a model that have a window, and how far they look back."""

    #: tokens as the model's configuration has them: what SGLang takes for its window, or one more
    tokens: int
    #: numbers of the layers that have the window, and of those that attend fully
    layers: tuple[int, ...]
    full: tuple[int, ...]
    #: KV heads of the whole model in a layer that has the window
    heads: int

    def span(self, page: int) -> int:
        """Tokens that travel of a room's end, with pages of so many."""
        return self.tokens + max(page, SLACK) - 1

    def pages(self, named: Sequence[int], prefix: int, end: int, tokens: int, page: int) -> list[int]:
        """Return the room's pages of its last window, of those that SGLang names for tokens up to `end`.

        ArgumentError: it names fewer than decode has to have, or more than travel.
        """
        first = end - len(named) * page
        begin = max(0, tokens - self.span(page)) // page * page
        if not begin <= first <= max(0, prefix, end - self.tokens + 1):
            raise ArgumentError(
                f"SGLang names {len(named)} pages of {page} tokens for a window of {self.tokens} that ends at token "
                f"{end} of {tokens}, where {prefix} were there: start both instances with one model and page size"
            )
        return [*[0] * ((first - begin) // page), *named, *[0] * ((tokens - end) // page)]


def window_of(config: Any, *, mla: bool) -> Window | None:
    """Read the windows of a model in its SGLang configuration; None: there are none that are known."""
    layers, full = config.swa_attention_layer_ids, config.full_attention_layer_ids
    # chunked local attention has the pool of a window, and looks back to a boundary instead
    if not (config.is_hybrid_swa and layers and full and config.sliding_window_size) or config.attention_chunk_size:
        return None
    heads = 1 if mla else config.get_swa_num_kv_heads(1)
    return Window(config.sliding_window_size, tuple(layers), tuple(full), heads)
