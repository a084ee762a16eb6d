"""Generated pages are fresh, complete, and say what the tables say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kvproto.fsm.codec import Body
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.protocol import effects, events, messages
from kvproto.protocol.routes import decode_routes
from kvproto.protocol.tables import TABLES
from kvproto.verify.cli.export_command import main
from kvproto.verify.draw import generated_docs
from kvproto.verify.draw.export import schema, spec
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.draw.properties import HAZARDS, PROPERTIES
from kvproto.verify.framework.draw.source import expression, used
from kvproto.verify.framework.draw.tables import concrete

Json = Any


def test_what_is_generated_is_fresh() -> None:
    old = generated_docs.stale()
    assert not old, f"stale: {', '.join(old)}; run: kvproto draw --write"


def test_a_part_that_is_wrong_missing_or_unknown_is_noticed() -> None:
    page = (generated_docs.ROOT / generated_docs.PROTOCOL).read_text()
    assert generated_docs.filled(page.replace("**SCATTERING**", "**SHATTERING**")) == page
    name = "rows decode_grant"
    with pytest.raises(generated_docs.DocsError, match=name):
        generated_docs.filled(page.replace(f"<!-- generated: {name} -->", "<!-- gone -->"))
    with pytest.raises(generated_docs.DocsError, match="no such part"):
        generated_docs.filled(page + "<!-- generated: rows nonsense -->\n<!-- end -->\n")


def test_every_link_within_the_page_leads_somewhere() -> None:
    page = (generated_docs.ROOT / generated_docs.PROTOCOL).read_text()
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors
    for path in re.findall(r"\]\((?!#|http)([^)]+)\)", page):
        assert (generated_docs.ROOT / path).exists(), path


def fits(document: Json, rule: Json, where: str = "$") -> list[str]:
    """The parts of a document that do not fit its schema, by as much of JSON Schema as ours uses."""
    if "anyOf" in rule:
        return [] if any(not fits(document, each) for each in rule["anyOf"]) else [f"{where}: fits no alternative"]
    if "const" in rule and document != rule["const"]:
        return [f"{where}: not {rule['const']}"]
    if "enum" in rule and document not in rule["enum"]:
        return [f"{where}: not one of {rule['enum']}"]
    kinds: Json = {"object": dict, "array": list, "string": str, "number": (int, float), "boolean": bool,
                   "null": type(None)}  # fmt: skip
    if "type" in rule and not isinstance(document, kinds[rule["type"]]):
        return [f"{where}: not of type {rule['type']}"]
    if isinstance(document, list):
        return [each for i, item in enumerate(document) for each in fits(item, rule["items"], f"{where}[{i}]")]
    return fits_object(document, rule, where) if isinstance(document, dict) else []


def fits_object(document: Json, rule: Json, where: str) -> list[str]:
    known, more = rule.get("properties", {}), rule.get("additionalProperties", True)
    found = [f"{where}: lacks {name}" for name in rule.get("required", []) if name not in document]
    for name, value in document.items():
        if name in known:
            found += fits(value, known[name], f"{where}.{name}")
        elif more is False:
            found.append(f"{where}: has {name}")
        elif isinstance(more, dict):
            found += fits(value, more, f"{where}.{name}")
    return found


def test_the_export_fits_its_schema_and_the_schema_is_strict() -> None:
    document = json.loads(json.dumps(spec()))
    assert fits(document, schema()) == []
    assert fits({**document, "more": 1}, schema()) == ["$: has more"]
    del document["machines"][0]["rows"][0]["event"]
    assert fits(document, schema()) == ["$.machines[0].rows[0]: lacks event"]


def test_the_export_refers_only_to_what_it_has() -> None:
    document = spec()
    known_events, timers = {each["name"] for each in document["events"]}, {each["name"] for each in document["timers"]}
    for machine, table in zip(document["machines"], TABLES, strict=True):
        states = {state["name"] for state in machine["states"]}
        functions = {kind: {each["name"] for each in machine[kind]} for kind in ("guards", "changes", "effects")}
        assert len(machine["rows"]) == len(table.rows)
        assert {machine["initial"], *machine["final"]} <= states
        assert set(machine["events"]) <= known_events
        assert {state["timer"] for state in machine["states"]} <= {*timers, None}
        for row in machine["rows"]:
            assert {row["from"], row["to"]} <= states
            assert row["event"] in machine["events"]
            assert row["when"] is None or row["when"] in functions["guards"]
            assert row["let"] is None or row["let"] in functions["changes"]
            assert set(row["do"]) <= functions["effects"]
            assert row["verb"] == "row" or row["why"]


def test_everything_in_the_vocabulary_has_a_sentence() -> None:
    document = spec()
    for kind in ("messages", "events", "effects"):
        assert [each["name"] for each in document[kind] if not each["doc"]] == []
    for machine in document["machines"]:
        for kind in ("states", "guards", "changes", "effects"):
            assert [each["name"] for each in machine[kind] if not each["doc"]] == [], machine["name"]


def test_every_message_event_and_effect_is_there_once() -> None:
    bodies = {cls for cls in vars(messages).values() if isinstance(cls, type) and issubclass(cls, Body)}
    assert sorted(talk.name for talk in TALK) == sorted(str(cls.__struct_config__.tag) for cls in bodies - {Body})
    raised = {event for table in TABLES for event in table.events}
    assert raised == set(concrete(events, Event))
    assert all(issubclass(cls, Effect) for cls in concrete(effects, Effect))


def test_answers_are_messages() -> None:
    names = {talk.name for talk in TALK}
    for talk in TALK:
        assert set(re.findall(r"`([A-Z_]+)`", talk.answer)) <= names
        assert talk.sender in {"prefill", "decode", "either"}


def test_properties_and_hazards_refer_to_each_other() -> None:
    names = [each.name for each in PROPERTIES]
    assert names == [f"S{i}" for i in range(1, 14)] + [f"L{i}" for i in range(1, 6)]
    assert len({hazard.name for hazard in HAZARDS}) == len(HAZARDS) >= 50
    for hazard in HAZARDS:
        assert hazard.breaks
        assert set(hazard.breaks) <= set(names)


def test_what_hazards_say_prevents_them_exists() -> None:
    states = {state.name for table in TABLES for state in table.states}
    functions = {f.__name__ for table in TABLES for kind in used(table) for f in kind}
    timers = {timer for table in TABLES for timer in table.timers.values()}
    fields = {"arrived", "done", "released"}
    names = {talk.name for talk in TALK} | {fact.__name__ for fact in decode_routes.facts}
    for hazard in HAZARDS:
        for word in re.findall(r"`(\w+)`", hazard.prevented):
            assert word in states | functions | timers | fields | names, (hazard.name, word)


def test_an_expression_is_what_the_function_computes() -> None:
    for table in TABLES:
        guards, lets, _ = used(table)
        for function in (*guards, *lets):
            said = expression(function)
            assert said
            assert "\n" not in said
            assert '"""' not in said


def test_the_command_prints_the_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(spec()))
    assert main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "kvproto"
