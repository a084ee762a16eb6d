"""A party's edge as tables in Markdown: its routes, and the facts that they ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_type_hints

from kvproto.fsm.routing import Fact, Route, Routes
from kvproto.verify.framework.draw.describe import members
from kvproto.verify.framework.draw.tables import table_md
from kvproto.verify.framework.sources import made_by


def routes_md(routes: Routes) -> str:
    """The routes in their order: the first one that takes a message decides."""
    return table_md(("message", "when", "becomes"), [_line(routes, route) for route in routes.routes])


def _line(routes: Routes, route: Route) -> tuple[str, str, str]:
    asked = [f"{fact.__name__} {_either(asks)}" for fact, asks in zip(routes.facts, route.asks, strict=True) if asks]
    return _messages(routes, route), ", ".join(asked), _end(route)


def _either(asks: Iterable[object]) -> str:
    return " or ".join(f"`{ask.name}`" for ask in asks)  # type: ignore[attr-defined]  # members of an enum


def _messages(routes: Routes, route: Route) -> str:
    if set(route.messages) == set(routes.messages):
        return "every other"
    return ", ".join(f"`{message.__struct_config__.tag}`" for message in route.messages)


def _end(route: Route) -> str:
    if route.end == "drop":
        return f"dropped, counted as *{route.why}*"
    if route.end == "answer":
        said = get_type_hints(route.to[0])["return"].__struct_config__.tag
        return f"answered with `{said}`: {route.why}"
    events = [f"`{event.__name__}`" for to in route.to for event in made_by(to)]
    return ", then ".join(events)


def facts_md(fact: type[Fact]) -> str:
    """Return the possible facts about a message in one respect."""
    said = members(fact)
    return table_md((fact.__name__, "meaning"), [(f"`{each.name}`", said[each.name]) for each in fact])
