"""Guide: the commands of an engine's page, with clients in front of them.

    python -m examples.engine_runs.guide vllm        # in the engine's environment: make engines
    python -m examples.engine_runs.guide sglang
    python -m examples.engine_runs.guide vllm --ranks 2     # data-parallel ones of the prefill instance

The commands are those of the page, to the letter, but for `MODEL` (or `M`) and the options that a small model on a CPU
needs (`CPU`), which are put at the end of an instance's.  A row is a case of `clients`, and in the table as soon as
it is made.  The engine's own benchmark is run behind the router, too, and each instance is killed and started anew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import aiohttp

from examples.engine_runs import data_parallel, tokenizer
from examples.engine_runs.clients import Case, Clients, Row, cases, whole_model
from examples.engine_runs.kept_rows import KeptRows
from examples.sglang import model

TOP = Path(__file__).parents[2]
#: seconds until every process serves
START_S = 1500.0
#: seconds that SGLang keeps the router's connections when nothing comes (5 by default): one that it closes while a
#: prompt is on its way to prefill fails that half of the request, and decode waits for the room
KEPT_S = 120
#: answers after which an instance serves: SGLang's router opens its circuit to one by three
ENOUGH = 4
#: seconds from a request to the kill, from the kill to the next one, in which links still look well, and seconds in
#: which both are answered
UNDER_WAY_S, AFTER_S, ANSWERED_S = 1.0, 4.0, 400.0


class Guide(NamedTuple):
    """A page with the commands of servers and router; `cpu`: the options, and the environment, of a CPU.

    `benchmark`: the engine's own, which is run behind the router; `spelt`: the router takes prompts as text alone.
    """

    page: str
    model: str
    server: str
    url: str
    cpu: str
    environment: dict[str, str]
    benchmark: str
    spelt: bool = False


OURS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
GUIDES = {
    "vllm": Guide(
        "docs/embedding.md", "MODEL", "vllm serve", "http://127.0.0.1:8000",
        "--enforce-eager --dtype float32 --max-model-len 1024",
        {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1", "PYTHONPATH": str(TOP / "examples" / "vllm" / "cpu"),
        },
        "vllm bench serve --backend openai --base-url {url} --model {model} --dataset-name random --num-prompts 16 "
        "--random-input-len 200 --random-output-len 16 --ignore-eos --disable-tqdm",
    ),
    "sglang": Guide(
        "docs/sglang.md", "M", "python -m sglang.launch_server", "http://127.0.0.1:8000",
        "--device cpu --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph "
        "--disable-overlap-schedule --disable-custom-all-reduce --dtype float32 --mem-fraction-static 0.3 "
        "--max-total-tokens 8192 --context-length 1024 --max-running-requests 16 --skip-server-warmup "
        "--chunked-prefill-size 64 --page-size 16 --disaggregation-decode-retraction-backup none --sleep-on-idle",
        {
            "PYTHONPATH": str(TOP / "examples" / "sglang" / "cpu"), "MC_LOG_LEVEL": "ERROR",
            "SGLANG_HOST_IP": "127.0.0.1", "SGLANG_LOCAL_IP_NIC": "lo", "MOONCAKE_PROTOCOL": "tcp",
            "TORCHDYNAMO_DISABLE": "1", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "60",
            "SGLANG_TIMEOUT_KEEP_ALIVE": str(KEPT_S),
        },
        "python -m sglang.bench_serving --backend sglang-oai --base-url {url} --model {model} --tokenizer {model} "
        "--dataset-name random-ids --num-prompts 16 --random-input-len 200 --random-output-len 16 --disable-tqdm",
        spelt=True,
    ),
}  # fmt: skip


def commands(guide: Guide, folder: Path) -> list[str]:
    """Return the servers' and the router's commands of the page, for this model."""
    text = (TOP / guide.page).read_text()
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if guide.server in block)
    found, quoted = [""], False
    for line in block.replace("\\\n", " ").splitlines():
        found[-1] += line
        quoted ^= line.count("'") % 2 == 1
        found += [] if quoted else [""]
    made = []
    for command in found:
        if command.startswith((guide.server, "python -m ")):
            given = re.sub(rf"\b{guide.model}\b", shlex.quote(str(folder)), command)
            made.append(f"{given} {guide.cpu}" if command.startswith(guide.server) else given)
    return made


class Programs:
    """The commands' processes, each with a log of its own."""

    def __init__(self, guide: Guide, asked: list[str], out: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment, self.asked = {**os.environ, **OURS, **guide.environment, "PATH": path}, asked
        self.logs = [out / f"{index}.log" for index in range(len(asked))]
        self.made: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int) -> None:
        """Start one; its log goes on."""
        command = self.asked[index]
        with self.logs[index].open("a" if index in self.made else "w") as file:
            self.made[index] = subprocess.Popen(  # noqa: S602  # the page's own command, as a reader types it
                command, shell=True, env=self.environment | bound(command), stdout=file, stderr=file, cwd=TOP,
                start_new_session=True,
            )  # fmt: skip

    def kill(self, index: int) -> None:
        """Kill one, with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.made[index].pid, signal.SIGKILL)
        self.made[index].wait()

    def end(self) -> None:
        """End all of them."""
        for process in self.made.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for index, process in self.made.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30.0)
            self.kill(index)


@contextlib.contextmanager
def running(guide: Guide, asked: list[str], out: Path) -> Iterator[Programs]:
    """Run them until the end; what they have started ends, too."""
    programs = Programs(guide, asked, out)
    try:
        for index in range(len(asked)):
            programs.start(index)
        yield programs
    finally:
        programs.end()


def bound(command: str) -> dict[str, str]:
    """Return where SGLang puts the ranks of an instance on a machine that has fewer cores than it wants."""
    ranks = int(found[1]) if (found := re.search(r"--tp (\d+)", command)) else 1
    cores = os.cpu_count() or 1
    return {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(str(at % cores) for at in range(ranks))} if ranks > 1 else {}


async def serves(clients: Clients) -> bool:
    """Whether a request is answered."""
    if (await clients.get("/health"))[0] != HTTPStatus.OK:
        return False
    body = {"prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}
    return (await clients.ask("/v1/completions", body))[0] == HTTPStatus.OK


async def started(clients: Clients, programs: Programs, name: str) -> Row:
    """Wait until `ENOUGH` requests in a row are answered: a router may avoid an instance first."""
    begun, answered = time.monotonic(), 0
    while answered < ENOUGH:
        answered = answered + 1 if await serves(clients) else 0
        if time.monotonic() - begun > START_S:
            said = "; ".join(f"{log.name}: {log.read_text()[-300:]!r}" for log in programs.logs)
            return Row(name, good=False, seconds=START_S, note=said)
        await asyncio.sleep(2.0 if not answered else 0.0)
    return Row(name, good=True, seconds=round(time.monotonic() - begun, 1))


async def benchmark(guide: Guide, folder: Path, programs: Programs) -> Row:
    """Run the engine's own benchmark of servers: all of its requests are answered."""
    begun, command = time.monotonic(), guide.benchmark.format(url=guide.url, model=folder)
    ran = await asyncio.create_subprocess_shell(
        command, env=programs.environment, cwd=programs.logs[0].parent, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await ran.communicate())[0].decode(errors="replace")
    counted = re.search(r"Successful requests:\s+(\d+)", said)
    wanted = re.search(r"--num-prompts (\d+)", command)
    good = counted is not None and wanted is not None and counted[1] == wanted[1]
    return Row("the engine's own benchmark", good, round(time.monotonic() - begun, 1), "" if good else said[-300:])


async def replaced(clients: Clients, programs: Programs, index: int, name: str, case: Case) -> Row:
    """Kill an instance while a request is under way, ask once more, and start it anew."""
    begun = time.monotonic()

    async def ask(tokens: int) -> str:
        asked = time.monotonic()
        body = {"prompt": [7] * 300, "max_tokens": tokens, "ignore_eos": True}
        status, _ = await clients.ask("/v1/completions", body, ANSWERED_S)
        return f"status {status} after {time.monotonic() - asked:.0f} s"

    long = asyncio.create_task(ask(400))
    await asyncio.sleep(UNDER_WAY_S)
    programs.kill(index)
    await asyncio.sleep(AFTER_S)
    later, under_way = await asyncio.gather(ask(16), long)
    programs.start(index)
    back = await started(clients, programs, name)
    row = await clients.play(case) if back.good else back
    note = f"the request under way: {under_way}; asked {AFTER_S:.0f} s later: {later}; answers again after "
    note += f"{back.seconds:.0f} s"
    good, told = row.good and "status 0" not in note, note if row.good else f"{note}; {row.note}"
    return Row(name, good, round(time.monotonic() - begun, 1), told)


async def play(guide: Guide, folder: Path, programs: Programs, keep: Callable[[Row], None], ranks: int = 1) -> None:
    """Wait until they serve, then all cases; `keep` is called with each row that is made.

    `ranks`: data-parallel ones of the prefill instance.
    """
    tokens, whole = whole_model(folder)
    async with aiohttp.ClientSession() as session:
        clients = Clients(guide.url, str(folder), session, whole, tokens.decode if guide.spelt else list)
        keep(first := await started(clients, programs, "start"))
        if not first.good:
            return
        for case in cases(tokens, "first"):
            keep(await clients.play(case))
        keep(await clients.at_once([case for case in cases(tokens, "second") if case.prompts]))
        keep(await clients.leave(cases(tokens, "third")[0]))
        status, listed = await clients.get("/v1/models")
        keep(Row("models", status == HTTPStatus.OK and json.loads(listed)["data"] != [], 0.0))
        keep(await benchmark(guide, folder, programs))
        if ranks > 1:
            keep(await data_parallel.shared(clients, programs.asked, ranks))
        for index, side in enumerate(("prefill", "decode")):
            name, case = f"{side} killed and started anew", cases(tokens, side)[0]
            keep(await replaced(clients, programs, index, name, case))


def main() -> int:
    """Run one engine's; the exit code."""
    parser = argparse.ArgumentParser(description="the guide's own commands, with clients in front of them")
    parser.add_argument("engine", choices=GUIDES)
    parser.add_argument("--out", type=Path, default=Path(".engines/http"), help="where the model and the logs go")
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks of vLLM's prefill instance")
    args = parser.parse_args()
    if args.ranks > 1 and args.engine != "vllm":
        parser.error("--ranks is about vllm: SGLang's ranks are not named by a router")
    guide, folder, rows = GUIDES[args.engine], args.out / "llama", KeptRows(args.table)
    args.out.mkdir(parents=True, exist_ok=True)
    model.make(folder)
    tokenizer.save(folder, model.VOCABULARY)
    asked = commands(guide, folder.resolve())
    with running(guide, data_parallel.of_ranks(asked, args.ranks) if args.ranks > 1 else asked, args.out) as programs:
        asyncio.run(play(guide, folder.resolve(), programs, rows.keep, args.ranks))
    return 0 if rows.good else 1


if __name__ == "__main__":
    sys.exit(main())
