"""The ranks' edge: what the routes promise, looked at in every case that there is."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from kvproto.fsm.routing import Routes
from kvproto.protocol.routes import decode_routes, prefill_routes
from kvproto.verify.claims.routes import PROMISES
from kvproto.verify.framework.claims import sentence
from kvproto.verify.prove.proof import Failure, PairProof

NAME = "routes"


def prove() -> Iterator[PairProof]:
    """All that is promised of both sides' routes."""
    for routes in (prefill_routes, decode_routes):
        yield proof(routes)


def proof(routes: Routes) -> PairProof:
    """Prove the promises of one side's routes."""
    began, found = process_time(), PairProof(NAME, routes.name, possible=True)
    for message, facts, route in routes.cases():
        found.ways += 1
        for name, promise in PROMISES:
            found.proved[name] = found.proved.get(name, 0) + 1
            if route is None or not promise(routes, message, facts, route):
                case = f"{message.__name__} with {', '.join(f'{type(fact).__name__}.{fact.name}' for fact in facts)}"
                where = route.where.rpartition("/")[2] if route is not None else ""
                ends = f"route   {route.end} ({where})" if route is not None else "route   none"
                found.failures.append(Failure(NAME, routes.name, name, sentence(promise), "", where, (case, ends)))
    found.seconds = process_time() - began
    return found
