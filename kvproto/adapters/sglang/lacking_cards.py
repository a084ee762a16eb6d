"""LackingCards: tells how long each bootstrap server has answered without a card, or not at all.

A prefill instance that was killed takes its bootstrap server along, so nothing but silence tells a decode rank of it.
The card that is known stays, because an instance that restarts may be found by it; requests that come meanwhile would
wait for its links until SGLang's own timeout.  With a router that sends a request again they would so hold each try.

An answer counts while the server is asked: one that was asked long ago says nothing of now.
"""

from __future__ import annotations

from kvproto.adapters.card import Card

#: seconds in which no answer was a card, after which an instance without a link is gone; an answer tells as long
GONE_S = 10.0
#: the address of a bootstrap server, and a data-parallel rank of its instance
Source = tuple[str, int]


class LackingCards:
    """The bootstrap servers whose last answers were no cards."""

    def __init__(self) -> None:
        #: by server: when the first and the last of these questions were asked, and the last answer
        self._since: dict[Source, tuple[float, float, str]] = {}

    def note(self, source: Source, when: float, found: Card | str) -> None:
        """Count the answer to a question that was asked at `when`; a card ends the count."""
        first, last, _ = self._since.pop(source, (when, when, ""))
        if isinstance(found, str):
            self._since[source] = when if when - last > GONE_S else first, when, found

    def forget(self, source: Source) -> None:
        """Count anew, if it is asked again."""
        self._since.pop(source, None)

    def why(self, source: Source, now: float) -> str:
        """Return the last answer, if none was a card for `GONE_S` seconds; else nothing."""
        first, last, found = self._since.get(source, (now, now, ""))
        return found if last - first >= GONE_S >= now - last else ""
