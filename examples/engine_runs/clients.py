"""Clients: requests that users send to an OpenAI server, and whether each answer is the model's.

A case is a body and what has to come of it: the texts of a number of prompts, or a refusal.  Greedy answers are
compared with those of the whole model in one process, by characters, whether they came at once or as a stream.

Prompts are drawn as tokens.  Where a router takes prompts as text alone, they are spelt: a token is a character.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from examples.sglang import model

Body = dict[str, Any]
TOKENS, LONGEST = 16, 1024
#: seconds for one answer
PATIENCE = 120.0
#: the first digit of what is refused
REFUSED = 4


class Case(msgspec.Struct):
    """A request; `prompts`: the tokens of each (none: it must be refused); `copies`: answers of each.

    `stops`: it asks for an end before the fifth character of the whole model's answer.
    """

    name: str
    path: str
    body: Body
    prompts: list[list[int]]
    copies: int = 1
    tokens: int = TOKENS
    stops: bool = False


class Row(msgspec.Struct):
    """A case and its result."""

    name: str
    good: bool
    seconds: float
    note: str = ""


def cases(tokenizer: Any, seed: str) -> list[Case]:
    """Return all cases; those of another seed have other prompts, so no cache knows them."""
    noise = random.Random(seed)

    def drawn(count: int) -> list[int]:
        return [noise.randrange(3, model.VOCABULARY) for _ in range(count)]

    greedy = {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    long, text = drawn(333), f"Once upon a time, {seed}, " * 4
    words = [{"role": "user", "content": f"hello there {seed}, how are you today my friend?"}]
    chat = tokenizer.apply_chat_template(words, add_generation_prompt=True, tokenize=True, return_dict=False)

    def plain(name: str, prompt: Any, *prompts: list[int], copies: int = 1, tokens: int = TOKENS, **more: Any) -> Case:
        asked = list(prompts) or [prompt]
        return Case(name, "/v1/completions", {**greedy, "prompt": prompt, **more}, asked, copies, tokens)

    def said(name: str, **more: Any) -> Case:
        return Case(name, "/v1/chat/completions", {**greedy, "messages": words, **more}, [list(chat)])

    two = [drawn(64), drawn(64)]
    refused = [plain("too long", drawn(LONGEST + 100)), plain("a wrong request", drawn(40), temperature=-3)]
    for case in refused:
        case.prompts = []
    return [
        plain("tokens", drawn(100)), plain("long", long), plain("the same again", long),
        plain("text", text, tokenizer(text, add_special_tokens=False)["input_ids"]), plain("one token", drawn(1)),
        plain("one answer token", drawn(70), max_tokens=1, tokens=1), plain("stream", drawn(90), stream=True),
        plain("stream with usage", drawn(90), stream=True, stream_options={"include_usage": True}),
        plain("log probabilities", drawn(80), logprobs=3),
        plain("n = 2", drawn(80), n=2, copies=2, temperature=1.0, top_k=1),
        plain("two prompts of one length", two, *two), plain("min_tokens", drawn(60), min_tokens=8),
        msgspec.structs.replace(plain("stop", drawn(50)), stops=True),
        said("chat"), said("chat stream", stream=True), said("max_completion_tokens", max_completion_tokens=TOKENS),
        *refused,
    ]  # fmt: skip


def texts(body: str) -> list[str]:
    """Return the text of each choice, of an answer at once or of a stream."""
    if not body.startswith("data:"):
        choices = json.loads(body)["choices"]
        return [_text(choice) for choice in sorted(choices, key=lambda choice: choice["index"])]
    found: dict[int, str] = {}
    for line in body.splitlines():
        for choice in json.loads(line[6:]).get("choices", ()) if line.startswith("data: {") else ():
            found[choice["index"]] = found.get(choice["index"], "") + _text(choice)
    return [found[index] for index in sorted(found)]


def _text(choice: Any) -> str:
    # the last piece of a stream may be without content, or with none
    said: str | None = choice["text"] if "text" in choice else choice.get("message", choice.get("delta")).get("content")
    return said or ""


class Clients:
    """Clients of one address."""

    def __init__(
        self, url: str, model: str, session: aiohttp.ClientSession, whole: Callable[..., list[str]],
        spell: Callable[[list[int]], Any] = list,
    ) -> None:  # fmt: skip
        """`whole`: answers of the whole model to (prompts, tokens), as texts; `spell`: a prompt as it is sent."""
        self.url, self.model, self.session, self.whole, self.spell = url, model, session, whole, spell

    async def ask(self, path: str, body: Body, seconds: float = PATIENCE) -> tuple[int, str]:
        """Status and body of an answer; (0, why): there is none."""
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            several = isinstance(prompt[0], list)
            body = {**body, "prompt": [self.spell(each) for each in prompt] if several else self.spell(prompt)}
        try:
            timeout = aiohttp.ClientTimeout(seconds)
            async with self.session.post(self.url + path, json={"model": self.model, **body}, timeout=timeout) as said:
                return said.status, await said.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, f"{type(error).__name__}: {error}"

    async def play(self, case: Case) -> Row:
        """Send it, and judge the answer."""
        want = [text for text in self.whole(case.prompts, case.tokens) for _ in range(case.copies)]
        asked = case.body
        if case.stops:
            asked, want = {**asked, "stop": [want[0][4]]}, [want[0].split(want[0][4])[0]]
        begun = time.monotonic()
        status, body = await self.ask(case.path, asked)
        seconds = round(time.monotonic() - begun, 2)
        if not case.prompts:
            return Row(case.name, status // 100 == REFUSED, seconds, f"status {status}")
        got = texts(body) if status == HTTPStatus.OK else []
        note = "" if got == want else f"status {status}: {body[:200]!r}, expected {want!r}"
        return Row(case.name, got == want, seconds, note)

    async def at_once(self, every: list[Case]) -> Row:
        """Send all at once."""
        begun = time.monotonic()
        rows = await asyncio.gather(*map(self.play, every))
        wrong = [row.name for row in rows if not row.good]
        return Row("all at once", not wrong, round(time.monotonic() - begun, 2), ", ".join(wrong))

    async def leave(self, after: Case) -> Row:
        """Leave streams at several moments, then send `after`."""
        noise = random.Random(after.name)
        for delay in (0.02, 0.1, 0.3, 0.8):
            prompt = [noise.randrange(3, model.VOCABULARY) for _ in range(200)]
            await self.ask(after.path, {"prompt": prompt, "max_tokens": 400, "stream": True, "ignore_eos": True}, delay)
        row = await self.play(after)
        return msgspec.structs.replace(row, name="after clients that left")

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of another question; (0, ""): no answer."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(10.0)) as said:
                return said.status, await said.text()
        return 0, ""


def whole_model(folder: Path) -> tuple[Any, Callable[..., list[str]]]:
    """Return the tokenizer, and the answers of the whole model in this process."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    kind: Any = AutoModelForCausalLM
    whole, tokenizer = kind.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)
    whole.generation_config.eos_token_id = None  # an end of text is a token like others, as where it is ignored

    def answers(prompts: list[list[int]], tokens: int) -> list[str]:
        found = []
        for prompt in prompts:
            ids = torch.tensor([prompt])
            out = whole.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                                 pad_token_id=0)  # fmt: skip
            found.append(str(tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True)))
        return found

    return tokenizer, answers
