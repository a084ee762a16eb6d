"""Wrong command lines end with 2, without a traceback, and their last line names the mistake.

And how a command ends when it is not the command line's fault: interrupted, unread, or by a defect of ours.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kvproto import cli
from kvproto.cli import ending
from kvproto.errors import MissingExtraError
from kvproto.lab.cli import BENCHES
from kvproto.verify.cli import lint_command
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.trace.stories import lines

ROOT = Path(__file__).parent.parent
#: what is asked, with {} for a directory that has `t.jsonl` (a trace) and `bad.json`; and what the last line says
WRONG = [
    ("fly", "there is no command 'fly': kvproto --help lists them"),
    ("chek", "there is no command 'chek': is it check?"),
    ("check --fly", "unrecognized arguments: --fly (kvproto check --help tells what it takes)"),
    ("lint nonsense", "there is no machine 'nonsense'"),
    ("lint --tables nothing", "write MODULE:NAME"),
    ("lint --tables no.such:MODULE", "No module named"),
    ("lint --tables kvproto.errors:ArgumentError", "not a Protocol"),
    ("lint --tables broken:X", "broken.py:1"),
    ("check abrot", "is it abort"),
    ("check smoke --table t.md", "--table is of --mutants"),
    ("check --list --mutants", "one at a time"),
    ("check --list --replay {}/t.jsonl", "one at a time"),
    ("check --list smoke", "--list takes no CONFIG, and 'smoke' is one"),
    ("check smoke --replay {}/t.jsonl", "--replay takes no CONFIG"),
    ("check --mutants --save {}", "--save is of a search"),
    ("torture --plan --soak 10", "--plan and --soak ask different questions: one at a time"),
    ("trace {}/t.jsonl --links", "--links is of --format mermaid"),
    ("trace {}/t.jsonl --format json --states", "--states is of --format mermaid"),
    ("draw --write --check", "one at a time"),
    ("draw --check prefill_send", "'prefill_send' is a machine: --scene, --write and --check draw none by itself"),
    ("draw prefill_send --states", "--states is of --scene"),
    ("mutate --record", "--record is of --tables"),
    ("faults --sample 0", "--sample: '0' is not from 1"),
    ("doctor --need nosuch", "nothing of the name 'nosuch' to be tried: python, msgspec, tables"),
    ("demo --maps", "with --device cuda --transport nixl"),
    ("torture --traces {}/t.jsonl", "is a file, and a directory is wanted"),
    ("trace {}/t.jsonl --tables examples.two_phase_commit.parties:PROTOCOL", "another protocol's needs --tables"),
    ("replay {}/t.jsonl --tables examples.two_phase_commit.parties:PROTOCOL", "another protocol's needs --tables"),
    ("check smoke --jobs 0", "--jobs: '0' is not from 1"),
    ("check smoke --jobs many", "--jobs: 'many' is no whole number"),
    ("check smoke --memory 0", "--memory: '0' is not from 1"),
    ("check smoke --limit -3", "--limit: '-3' is not from 1"),
    (f"check smoke --limit {10**50}", "is not from 1"),
    ("check smoke --counts /nonexist/x", "--counts: there is no directory /nonexist"),
    ("check smoke --counts {}", "is a directory: name a file"),
    ("check smoke --counts {}/bad.json", "no golden counts"),
    ("check smoke --save /proc/nope", "--save: /proc/nope cannot be made"),
    ("check --mutants --table /nonexist/x", "--table: there is no directory"),
    ("check --mutants nobody", "no mutation 'nobody'"),
    ("check --plant nobody", "no planted bug"),
    ("prove nobody", "nothing to prove of 'nobody'"),
    ("prove decode_grant --page x.md", "name no table"),
    ("prove --jobs 0", "--jobs: '0' is not from 1"),
    ("check smoke --beside {}", "there is no package kvproto in"),
    ("check smoke --beside {} --counts c.toml", "--counts is of a search of one build"),
    ("check --replay nofile", "No such file or directory: nofile"),
    ("check --replay {}", "Is a directory"),
    ("check --replay {}/bad.json", "not a recorded counterexample"),
    ("check --replay {}/t.jsonl", "not a recorded counterexample: line 1"),
    ("draw nonsense", "there is no machine 'nonsense'"),
    ("draw --scene nowhere", "there is no scene 'nowhere'"),
    ("draw --out /proc/nope", "--out: /proc/nope cannot be made"),
    ("export --out /nonexist/x.json", "--out: there is no directory /nonexist"),
    ("draw --scene abort --format dot", "argument --format: invalid choice: 'dot'"),
    ("draw --scene abort --format md", "a scene is no md"),
    ("completion", "required: shell"),
    ("completion csh", "invalid choice: 'csh'"),
    ("top", "required: url"),
    ("top http://127.0.0.1:1 --every 0", "--every: '0' is not from 0.1"),
    ("torture --seeds -1", "--seeds: '-1' is not from 1"),
    ("keys {}/bad.json", "File exists"),
    ("torture --rooms 0", "--rooms: '0' is not from 1"),
    ("mutate --sample 0", "--sample: '0' is not from 1"),
    ("mutate --tables --shard 3", "--shard: '3' is no I/N: the second of three parts is 2/3"),
    ("mutate --tables --shard 3/2", "--shard: '3' is not from 1 to 2"),
    ("mutate", "no spec/code-mutants.toml here: this works in kvproto's own tree"),
    ("bench layers --repeats 0", "--repeats: '0' is not from 1"),
    ("bench layers --cpu --tokens 1000", "--tokens 1000: that is not whole pages of 16"),
    ("bench layers --cpu --groups 9", "--groups 9: the tiny model has 8 layers"),
    ("bench layers --ways dear", "--ways: 'dear': there are staged, mapped"),
    ("fuzz --inputs 0", "--inputs: '0' is not from 1"),
    ("bench grid --pages 48", "--pages 48: a page is a power of two"),
    ("bench grid --pairs tiny --prompts 1", "--prompts 1: with tiny that is not whole MiB"),
    ("bench hybrid --gpus 0", "--gpus: '0' is not from 1"),
    ("bench hybrid --cpu --forward", "--forward: it is a stream of a device that waits for it"),
    ("bench pipeline --cpu --forward", "--forward: it is a stream of a device that waits for it"),
    ("bench beside --cpu --ways dear", "--ways: 'dear': there are "),
    ("bench route --sizes 0", "--sizes: '0' is not from 1 to 65536"),
    ("torture --seed many", "--seed: 'many' is no whole number"),
    ("trace nofile", "nofile: cannot be read"),
    ("trace {}", "cannot be read"),
    ("trace {}/t.jsonl --room 8", "room 8 gen 0 is not in these traces"),
    ("trace {}/t.jsonl --room x", "is no room"),
    (f"trace {{}}/t.jsonl --room {'9' * 5000}", "is no room"),
    ("trace {}/t.jsonl --out /nonexist/x", "--out: there is no directory /nonexist"),
    ("trace {}/bad.json", "bad.json:1: "),
    ("replay nofile", "No such file or directory: nofile"),
    ("replay {}", "Is a directory"),
    ("replay {}/bad.json", "not a recorded counterexample"),
    ("explore nosuch", "no configuration 'nosuch'; is it "),
    ("explore smoke --way 0.77", "step 2 is 77, and its state has"),
    ("inspect nofile", "nofile: cannot be read"),
    ("inspect {}/t.jsonl --out /nonexist/x", "--out: there is no directory /nonexist"),
    ("inspect {}/t.jsonl --out {}", "is a directory: name a file"),
    ("doctor --need", "--need: expected one argument"),
    ("demo --trace /proc/nope", "--trace: /proc/nope cannot be made"),
    ("demo --passes nope", "passes are some of"),
    ("demo --prefill-tp 3", "heads-do-not-divide"),
    ("demo --decode-pp 5", "layers"),
    ("demo --rooms 1 --abort decode", "left to be unharmed"),
    ("demo --order NDH", "NHD"),
    ("demo --head-dim 15", "even"),
    ("demo --dtype int4", "invalid choice"),
    ("demo --hidden 100", "query heads"),
    ("demo --model gemma3 --device cuda", "--device cuda is not of --model gemma3: it computes on the CPU"),
    ("demo --model gemma3 --layers 8", "--layers is not of --model gemma3"),
    ("demo --model gemma3 --dtype fp8", "dtype float8_e4m3fn with --model gemma3"),
    ("demo --model gemma3 --prefill-tp 3", "tp 3 x pp 1 with --model gemma3: 1, 2, 4, 8 ranks can share its heads"),
    (f"demo --rooms {2**70}", "--rooms: "),
    ("demo --tokens -1", "--tokens: '-1' is not from 1"),
    ("demo --prefill-tp 513", "--prefill-tp: '513' is not from 1 to 512"),
    ("demo --least nan", "--least: 'nan' is not from 0 to 1"),
    ("demo --page-size 0", "--page-size: '0' is not from 1"),
    ("demo --ring x", "--ring: 'x' is no number"),
    ("demo --patience inf", "--grant-wait/--patience: 'inf' is not from"),
    ("bench nonsense", "there is no benchmark 'nonsense': kvproto bench lists them"),
    ("bench figures --results nofile", "nofile: there are no results here: --results FILE names some"),
    ("bench figures --results {}/bad.json", "run 1: Object missing required field"),
    ("bench figures --into {}/bad.json", "there is no <!-- figures -->"),
    ("bench figures --add nofile", "No such file or directory: nofile"),
    ("bench step --rooms 0", "--rooms: '0' is not from 1"),
    ("bench control --pace -1", "--pace: '-1' is not from 0"),
    ("bench pipeline --json /nonexist/x", "--json: there is no directory /nonexist"),
    ("bench pipeline --pairs 9-9", "--pairs: '9-9': there are"),
    ("bench kernels --mib 0", "--mib: '0' is not from 1"),
    ("bench trace {}/absent.jsonl", "absent.jsonl"),
    ("bench trace {}/bad.json", "bad.json: line 1: Object missing required field `timestamp`: mend or remove the line"),
    ("bench trace {}/bad.json --prefill 2:x", "--prefill: 'x' is no whole number"),
    ("bench trace {}/bad.json --decode 1:3", "tp must divide the heads"),
    ("bench trace {}/bad.json --ways ring", "--ways: 'ring': there are prefetch, no prefetch, pages"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a trace, a file of no command's kind, and a module that cannot be loaded."""
    (tmp_path / "t.jsonl").write_text("".join(line + "\n" for line in lines(SCENES[0].logs()[0])))
    (tmp_path / "bad.json").write_text('{"property": 3}')
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return tmp_path


@pytest.mark.parametrize(("asked", "says"), WRONG, ids=[asked[:60] for asked, _ in WRONG])
def test_what_is_wrong_is_said(asked: str, says: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = asked.replace("{}", str(place)).split()
    if words[0] in {"bench", "demo"} and not all(map(find_spec, ("torch", "tabulate", "rich"))):
        pytest.skip("what a benchmark needs is not installed")
    if "figures" in words:
        words += [] if "--results" in words else ["--results", str(ROOT / "examples" / "results" / "h200.json")]
    try:
        code: Any = cli.main(words)
    except SystemExit as stop:
        code = stop.code
    end = capsys.readouterr()
    assert code == 2, end
    assert "Traceback" not in end.err and end.out == ""
    assert end.err.startswith(f"kvproto {words[0]}" if words[0] in cli.COMMANDS else "kvproto: ")
    assert end.err.count("\n") == 1 and says in end.err


def test_every_parser_of_the_package_reports_a_mistake_in_one_line() -> None:
    sources = {path.name: path.read_text() for path in (ROOT / "kvproto").rglob("*.py")}
    plain = [name for name, text in sources.items() if re.search(r"=.*\bArgumentParser\(", text)]
    # the sum of all parsers, which reads nothing itself
    assert plain == ["completion_command.py"]


def test_every_command_is_asked_something_wrong() -> None:
    asked = [shlex.split(line) for line, _ in WRONG]
    assert {words[0] for words in asked} >= set(cli.COMMANDS)
    assert {words[1] for words in asked if words[0] == "bench"} >= set(BENCHES)


def test_nothing_is_searched_when_its_counts_cannot_be_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "counts.toml").write_text("[smoke]\nstates = -1\n")
    assert cli.main(["check", "smoke", "--counts", str(place / "counts.toml")]) == 2
    end = capsys.readouterr()
    assert end.out == "" and "counts.toml: smoke: Expected `int` >= 0" in end.err


# --------------------------------------------------------------------------------------------- how else it ends
@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ValueError("a slip"), ending.DEFECT, "ValueError: a slip"),
        (KeyError("a slip"), ending.DEFECT, "Traceback"),
        (KeyboardInterrupt(), ending.INTERRUPTED, "kvproto lint: interrupted\n"),
        (MemoryError(), ending.WRONG, "kvproto lint: there is not enough memory"),
        (OSError(28, "No space left on device", "/a/b"), ending.WRONG, "kvproto lint: No space left on device: /a/b\n"),
        (ConnectionRefusedError(111, "Connection refused"), ending.WRONG, "kvproto lint: Connection refused\n"),
        (BrokenPipeError(32, "Broken pipe"), ending.WRONG, "Broken pipe"),  # another pipe than the output
        (OSError("a word"), ending.WRONG, "kvproto lint: a word\n"),
        (TimeoutError(), ending.WRONG, "kvproto lint: TimeoutError\n"),
        (ModuleNotFoundError("no name"), ending.DEFECT, "no name"),
        (ModuleNotFoundError("ours", name="kvproto.lost"), ending.DEFECT, "ours"),
    ],
)
def test_each_error_has_its_end(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Any) -> Callable[[], int]:
        raise error

    monkeypatch.setattr(lint_command, "main", broken)
    assert cli.main(["lint"]) == code
    end = capsys.readouterr()
    assert says in end.err
    assert ("Traceback" in end.err) == (code == ending.DEFECT)
    if code == ending.DEFECT:
        assert "another exception" not in end.err
        assert end.err.splitlines()[-1].startswith("kvproto lint: a defect, of kvproto")


def test_help_does_not_hide_a_module_of_ours_that_is_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"kvproto\.nowhere"):
        ending.run("kvproto.nowhere", ["--help"], "demo", "kvproto nowhere: goes there")


def test_a_package_is_missing_to_a_command_that_cannot_be_told_about() -> None:
    with pytest.raises(MissingExtraError, match=r"kvproto\[demo\]"):
        ending.run("no_such_package", ["--help"], "demo")


def ended_with_output(work: Callable[[], int], *, read: bool) -> tuple[int, str]:
    """How work ends whose output goes to a socket, and the device that output goes to then."""
    ours, reader = socket.socketpair()
    reader.sendall(b"what could be read")
    with pytest.MonkeyPatch.context() as patched, open(ours.detach(), "w") as out, reader:  # noqa: PTH123
        patched.setattr(sys, "stdout", out)
        if not read:
            reader.close()
        return ending.ended("kvproto lint", work), os.readlink(f"/proc/self/fd/{out.fileno()}")  # noqa: PTH115


def test_output_that_is_not_read_to_its_end_is_dropped() -> None:
    assert ended_with_output(lambda: sys.stdout.write("much") and 0, read=False) == (ending.UNREAD, os.devnull)


def raises(error: OSError) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_another_pipe_that_breaks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, where = ended_with_output(raises(BrokenPipeError(32, "Broken pipe")), read=True)
    assert code == ending.WRONG and where.startswith("socket:")
    assert capsys.readouterr().err == "kvproto lint: Broken pipe\n"


def test_another_error_is_told_where_nobody_reads(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = ended_with_output(raises(FileNotFoundError(2, "No such file or directory", "a.json")), read=False)
    assert code == ending.WRONG
    assert capsys.readouterr().err == "kvproto lint: No such file or directory: a.json\n"


def test_a_stream_that_is_closed_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert ending.ended("kvproto lint", lambda: sys.stdout.write("much") and 0) == 0
    for stream in (sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        stream.close()


def shell(line: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", line.replace("kvproto", f"{sys.executable} -m kvproto")], capture_output=True, text=True,
        timeout=100, check=False, cwd=ROOT, env=environment, **more,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["export", "draw --guards --effects", "check --list", "--help"])
def test_an_output_that_nobody_reads_ends_quietly(command: str) -> None:
    done = shell(f"{{ sleep 1; kvproto {command}; echo $? >&2; }} | true")
    assert done.stderr.split() == [str(ending.UNREAD)]


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_is_closed_is_not_written_to(closed: str) -> None:
    for command, code in (("lint", 0), ("lint nonsense", 2)):
        asked = f"{shlex.quote(sys.executable)} -m kvproto {command} {closed}"
        done = subprocess.run(["/bin/sh", "-c", asked], capture_output=True, text=True, check=False)
        assert done.returncode == code and "Traceback" not in done.stderr


WITHOUT = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"z3", "prometheus_client", "pytest", "zmq", "rich", "torch", "nixl", "mooncake"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
from kvproto.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_what_a_command_is_for_is_told_without_its_extra(command: str) -> None:
    asked = [sys.executable, "-c", WITHOUT, command, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr
    what = cli.COMMANDS[command][1]
    assert "usage: kvproto" in done.stdout or (what in done.stdout and "pip install 'kvproto[" in done.stdout)


def test_mutants_of_another_protocol_need_the_solver_alone() -> None:
    asked = ["mutate", "--tables", "examples.fencing_lock.lock:LOCK", "--operator", "negate", "--jobs", "1"]
    for program, code, says in ((WITHOUT.replace('"z3", ', ""), 0, "| all |"), (WITHOUT, 2, "'kvproto[prove]'")):
        command = [sys.executable, "-c", program, *asked]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == code and says in done.stdout + done.stderr


def test_a_full_disk_is_told_in_a_line() -> None:
    done = shell("kvproto export > /dev/full")
    assert (done.returncode, done.stderr) == (2, "kvproto export: No space left on device\n")


def test_an_interrupt_ends_with_130() -> None:
    code = (
        "import os, signal, sys; signal.signal(2, signal.default_int_handler); from kvproto import cli; "
        "from kvproto.verify.cli import lint_command; lint_command.main = lambda argv: os.kill(os.getpid(), 2) or 0; "
        "sys.exit(cli.main(['lint']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "kvproto lint: interrupted\n")


def test_the_help_and_the_page_have_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    said, page = capsys.readouterr().out, (ROOT / "docs" / "commands.md").read_text()
    codes = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE))
    assert codes == {str(code): meaning for code, meaning in ending.MEANINGS.items()}
    for code, meaning in codes.items():
        assert any(line.split(maxsplit=1) == [code, meaning] for line in said.splitlines())
    for name, (_, what) in cli.COMMANDS.items():
        assert f"| `{name}` | {what} |" in page


#: a command's own word of the tables that it takes
TABLES = re.compile(r"add_(tables|place)\(|\"--tables\", nargs")


def test_the_page_names_the_commands_that_accept_other_tables() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    (told,) = re.findall(r"`kvproto (\w+`(?:,\s+`\w+`)+\s+and `\w+`) accept the tables", page)
    sources = {name: find_spec(module) for name, (module, _) in cli.COMMANDS.items()}
    takes = {name for name, spec in sources.items() if TABLES.search(Path(str(spec and spec.origin)).read_text())}
    assert set(re.findall(r"\w+(?=`)", told)) == takes
