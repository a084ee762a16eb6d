"""`kvproto top URL`: running ranks on one screen, from the metrics of their `MetricsExporter`.

    kvproto top http://127.0.0.1:9400/metrics            every two seconds, until it is interrupted
    kvproto top http://127.0.0.1:9400/metrics --once     once; --json: once, for a script

Each rank has a block: its rooms by state, outcomes, slots or ring, and links.  Counters are shown as rates per second,
from the second screen on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from urllib.error import URLError
from urllib.request import urlopen

from kvproto.arguments import real
from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine
from kvproto.errors import ArgumentError

WHO = ("side", "group", "rank")
PATIENCE = 5.0
CLEAR = "\x1b[2J\x1b[H"
#: (name without its prefix, the labels' values beside the rank's)
Key = tuple[str, tuple[str, ...]]
ValueNumbers = dict[Key, float]
Ranks = dict[tuple[str, ...], ValueNumbers]


def read(url: str) -> Ranks:
    """Return every metric by rank.  OSError, ValueError: no answer, or no page of metrics."""
    from prometheus_client.parser import text_string_to_metric_families  # the help does not need it

    with urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310  # the address is the operator's own
        text = answer.read().decode()
    found: Ranks = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("kvproto_"):
                rest = tuple(value for name, value in sorted(sample.labels.items()) if name not in WHO)
                who = tuple(sample.labels.get(name, "") for name in WHO)
                found[who][sample.name.removeprefix("kvproto_"), rest] = sample.value
    return found


def plain(ranks: Ranks) -> list[dict[str, object]]:
    """All ranks, each with its numbers by name; where a name has labels, by these."""
    found: list[dict[str, object]] = []
    for who, numbers in sorted(ranks.items()):
        told: dict[str, object] = {}
        for (name, labels), value in numbers.items():
            inner = told.setdefault(name, {}) if labels else None
            if isinstance(inner, dict):
                inner[" ".join(labels)] = value
            else:
                told[name] = value
        found.append({**dict(zip(WHO, who, strict=True)), "numbers": told})
    return found


def screen(ranks: Ranks, former: Ranks, seconds: float) -> str:
    """All ranks; `former`: what they said so many seconds ago (empty: nothing yet)."""
    if not ranks:
        return "no endpoint is served here"
    return "\n\n".join(
        "\n".join(_rank(who, numbers, former.get(who, {}), seconds)) for who, numbers in sorted(ranks.items())
    )


def _rank(who: tuple[str, ...], numbers: ValueNumbers, former: ValueNumbers, seconds: float) -> list[str]:
    side, group, rank = who
    age = numbers.get(("snapshot_age_seconds", ()), 0.0)
    state = "" if numbers.get(("up", ())) else ", closed or broken"
    stale = f", as of {age:.0f} s ago" if age > 1.0 else ""
    parts: list[tuple[str, Callable[[str], str]]] = [
        ("rooms", lambda name: _each(numbers, name)),
        ("outcomes_total", lambda name: _grown(numbers, former, name, seconds)),
        ("sends", lambda name: _each(numbers, name)),
        ("grants", lambda name: _each(numbers, name)),
        ("parts_total", lambda name: _grown(numbers, former, name, seconds)),
        ("staging_fallbacks_total", lambda name: _grown(numbers, former, name, seconds, most=6)),
        ("slots", lambda name: _slots(numbers, name)),
        ("ring_bytes", lambda name: _ring(numbers, name)),
        ("links", lambda name: f"{_each(numbers, name)}; most beats missed {_most(numbers, 'link_missed_heartbeats')}"),
        ("timer_ends_total", lambda name: _grown(numbers, former, name, seconds, most=6)),
        ("anomalies_total", lambda name: _grown(numbers, former, name, seconds, most=6)),
        ("outbox", lambda name: _each(numbers, name)),
        ("pass_seconds", lambda name: _passes(numbers, name)),
    ]
    lines = [(name.removesuffix("_total").replace("_", " "), tell(name)) for name, tell in parts]
    told = [f"  {name:<17} {text}" for name, text in lines if text]
    return [f"{side} rank {rank} of group {group}{state}{stale}", *told]


def _of(numbers: ValueNumbers, name: str) -> dict[str, float]:
    return {" ".join(labels): value for (each, labels), value in numbers.items() if each == name}


def _each(numbers: ValueNumbers, name: str) -> str:
    return ", ".join(f"{what} {value:.0f}" for what, value in _of(numbers, name).items())


def _one(numbers: ValueNumbers, name: str) -> str:
    return f"{numbers.get((name, ()), 0.0):.0f}"


def _slots(numbers: ValueNumbers, name: str) -> str:
    slots = _each(numbers, name)
    return f"{slots}; queue {_one(numbers, 'slot_queue')}" if slots else ""


def _most(numbers: ValueNumbers, name: str) -> str:
    return f"{max(_of(numbers, name).values(), default=0.0):.0f}"


def _grown(numbers: ValueNumbers, former: ValueNumbers, name: str, seconds: float, most: int = 20) -> str:
    """The largest of these counters, and what each has grown by a second."""
    before, told = _of(former, name), []
    for what, value in sorted(_of(numbers, name).items(), key=lambda pair: -pair[1])[:most]:
        rate = f" ({(value - before.get(what, 0.0)) / seconds:.1f}/s)" if former else ""
        told.append(f"{what} {value:.0f}{rate}")
    return ", ".join(told)


def _ring(numbers: ValueNumbers, name: str) -> str:
    parts = _of(numbers, name)
    if not parts:
        return ""
    size = parts.pop("size")
    shares = ", ".join(f"{part} {100 * nbytes / size:.0f} %" for part, nbytes in parts.items())
    age, queue = numbers.get(("oldest_grant_seconds", ()), 0.0), _one(numbers, "space_queue")
    return f"{shares}; oldest grant {age:.0f} s, queue {queue}"


def _passes(numbers: ValueNumbers, name: str) -> str:
    """How long ninety-nine passes of a hundred took at most, by the histogram's bounds."""
    count = numbers.get((f"{name}_count", ()), 0.0)
    buckets = sorted((float(labels[0]), value) for (each, labels), value in numbers.items() if each == f"{name}_bucket")
    bound = next((bound for bound, below in buckets if below >= 0.99 * count), 0.0)
    return f"{count:.0f}, 99 % within {bound:g} s" if count else ""


def main(argv: Sequence[str]) -> int:
    """Show them until interrupted; returns the exit code."""
    parser = CommandLine(prog="kvproto top", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where a MetricsExporter serves, such as http://127.0.0.1:9400/metrics")
    every = real(0.1, 3600.0)
    parser.add_argument("--every", type=every, default=2.0, metavar="SECONDS", help="between two screens (2)")
    parser.add_argument("--once", action="store_true", help="one screen, and no more")
    parser.add_argument("--json", action="store_true", help="once, as one JSON document, for tools")
    asked = parser.parse_args(argv)
    former: Ranks = {}
    try:
        while True:
            try:
                ranks = read(asked.url)
            except (URLError, OSError, ValueError) as error:
                why = getattr(error, "reason", error)
                raise ArgumentError(f"{asked.url}: {why}: does a MetricsExporter serve there?") from error
            if asked.json:
                say(json.dumps(plain(ranks), indent=1))
            else:
                say(("" if asked.once else CLEAR) + screen(ranks, former, asked.every))
            if asked.once or asked.json:
                return WELL
            former = ranks
            time.sleep(asked.every)
    except KeyboardInterrupt:
        return WELL
