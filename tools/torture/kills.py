"""Commands that are killed at random moments, given again, and held against unbroken ones, file for file.

python tools/torture/kills.py --seconds 300 --seed 0 [--only train,rerank] [--case 17]
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import calls
import forked
import world
from world import OUT, Command

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
STATUS = {signal.SIGKILL: 137, signal.SIGTERM: 143, signal.SIGINT: 130}
CASES = 120


@dataclass(frozen=True)
class Kill:
    """A signal, and when it comes: after a share of the unbroken run's time, or at the n-th call of a function.

    worker: the number of the one that it is sent to, of the processes that the command starts; None: to the command.
    """

    signal: signal.Signals
    moment: float | None = None
    call: str | None = None
    number: int = 0
    when: str = "before"
    worker: int | None = None

    def __str__(self) -> str:
        if self.worker is not None:
            return f"{self.signal.name} at {self.moment:.3f} to worker {self.worker}"
        at = f"at {self.moment:.3f}" if self.call is None else f"{self.when} os.{self.call} {self.number}"
        return f"{self.signal.name} {at}"


def drawn(command: Command, random: random.Random) -> Kill:
    """A third of the kills come at calls that write, the others at any moment."""
    number = random.choice(SIGNALS)
    if command.workers and random.random() < 1 / 2:
        return Kill(number, random.random(), worker=1)
    called = [name for name in calls.CALLS if command.calls[name]]
    if called and random.random() < 1 / 3:
        call = random.choice(called)
        return Kill(number, None, call, random.randint(1, command.calls[call]), random.choice(calls.WHEN))
    return Kill(number, random.random())


def torture(
    command: Command, number: int, seed: int, base: Path, kills: Sequence[Kill] | None = None
) -> dict[str, Any]:
    """One case: kill, look, once in a while kill again, finish, compare. kills: None are drawn."""
    draw = random.Random(f"{seed} {number}")
    cwd = base / "cases" / str(number)
    if kills is None:
        kills = [drawn(command, draw) for _ in range(1 + (draw.random() < 0.2))]
    wrong: list[str] = []
    landed = 0
    try:
        cwd.mkdir(parents=True)
        for kill in kills:
            ended = killed(command, kill, cwd, base, fresh=landed == 0)
            landed += ended.hit
            first = kill is kills[0]  # what an earlier kill left may still be there, where this one came early
            wrong += [f"after {kill}: {one}" for one in after(command, kill, ended, cwd, first)]
        wrong += finished(command, cwd, base)
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error} {traceback.format_exc()[-600:]}")
    if not wrong:
        shutil.rmtree(cwd)
    described = {"case": number, "command": command.name, "kills": [str(kill) for kill in kills]}
    return described | {"landed": landed, "wrong": wrong}


def killed(command: Command, kill: Kill, cwd: Path, base: Path, fresh: bool) -> forked.Ended:
    """Run the command until it is killed; where it ends before that, again, with an earlier moment."""
    share = kill.moment
    environment = {"XDG_CACHE_HOME": str(base / "cache"), "TMPDIR": str(base)}
    for _ in range(4):
        arguments = command.again(command, cwd, False)
        if kill.call is not None:
            asked = {"call": kill.call, "number": kill.number, "when": kill.when, "signal": int(kill.signal)}
            environment |= {calls.VARIABLE: json.dumps(asked)}
            ended = forked.run(arguments, cwd, calls.install, environment)
            # After some work has been done there are fewer calls than in the unbroken run: then none is the n-th.
            return ended if ended.status == 0 else forked.Ended(**{**vars(ended), "hit": True})
        if kill.worker is None:
            ended = forked.run(arguments, cwd, None, environment, (kill.signal, share * command.seconds))
        else:
            ended = worker_killed(arguments, cwd, environment, kill, share * command.seconds)
        if ended.hit and ended.status != 0:
            return ended
        share *= 0.6
        if not fresh:
            return ended
        shutil.rmtree(cwd / OUT, ignore_errors=True)
    return ended


def worker_killed(
    arguments: Sequence[str], cwd: Path, environment: dict[str, str], kill: Kill, seconds: float
) -> forked.Ended:
    """Run the command, and send the signal to one of the processes that it has started by then, or starts next."""
    running = forked.Running(arguments, cwd, None, environment)
    running.wait(until=seconds)
    while not running.poll():
        for worker in workers(running.pid, kill.worker):
            os.kill(worker, kill.signal)
            ended = running.result(hit=True)
            return replace(ended, hit=ended.status != 0)
        running.wait(until=time.monotonic() - running.began + 0.01)
    return running.result()


def workers(pid: int, number: int) -> list[int]:
    """The process of this number among those that a process has started; none before its Python runs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and f"\0LOCAL_RANK={number}\0".encode() in b"\0" + (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def after(command: Command, kill: Kill, ended: forked.Ended, cwd: Path, first: bool = True) -> list[str]:
    """What is wrong right after the kill."""
    out = cwd / OUT
    wrong = [f"the streams hold {word!r}: {ended.err[-1500:]}" for word in ended.broke]
    wrong += world.damaged(out)
    if not ended.hit:
        refused = ended.status == 2 and "already" in ended.err
        return wrong + ([] if ended.status == 0 or refused else [f"status {ended.status} unkilled: {ended.err[-800:]}"])
    # Where another process is lost, the first says so, or Lightning ends it.
    expected = (STATUS[kill.signal],) if kill.worker is None else (1, -signal.SIGKILL)
    if ended.status not in expected:
        wrong.append(f"status {ended.status}, not {expected}: {ended.err[-800:]}")
    if len(ended.said) > 1 and not command.workers:
        wrong.append(f"{len(ended.said)} lines on stderr: {ended.said}")
    if kill.signal != signal.SIGKILL and first and not command.workers:  # those are ended in any way
        left = world.temporary(out)
        wrong += [f"{name} is left" for name in left if name.endswith(world.TEMPORARY) or "outcomes" in name]
    if command.trains:
        for record in out.rglob("run.json"):
            wrong += stopped(command, record, kill, ended.out) if first or "epoch" in ended.out else []
    return wrong


def stopped(command: Command, record: Path, kill: Kill, said: str) -> list[str]:
    """What is wrong with the record and the checkpoint of a training that was stopped."""
    status = json.loads(record.read_text())["status"]
    wrong = []
    if kill.signal == signal.SIGKILL or command.workers:
        if status not in ("running", "stopped", "finished"):
            wrong.append(f"{record.parent.name} is {status!r} after a kill")
    elif status not in ("stopped", "finished") and not ("resuming" in said and "epoch" not in said):
        wrong.append(f"{record.parent.name} is {status!r}, not stopped")
    rows = max((int(epoch) + 1 for epoch in re.findall(r"epoch (\d+): loss", said)), default=0)
    last = record.parent / "checkpoints" / "last.ckpt"
    if rows > 1 and not last.is_file() and record.parent.name == OUT:
        wrong.append(f"{rows} epochs are over and there is no last.ckpt")
    elif last.is_file() and record.parent.name == OUT:
        kept = kept_epochs(last)
        if kept < rows - 1:
            wrong.append(f"last.ckpt holds {kept} epochs of {rows}")
    return wrong


def kept_epochs(last: Path) -> int:
    """How many epochs a last.ckpt holds."""
    import torch

    return len(torch.load(last, map_location="cpu", weights_only=True)["callbacks"]["RunRecorder"]["rows"])


def finished(command: Command, cwd: Path, base: Path) -> list[str]:
    """Give the command again and hold what it wrote against what the unbroken one wrote."""
    out, environment = cwd / OUT, {"XDG_CACHE_HOME": str(base / "cache"), "TMPDIR": str(base)}
    last = out / "checkpoints" / "last.ckpt"
    kept = kept_epochs(last) if last.is_file() else 0
    ended = forked.run(command.again(command, cwd, False), cwd, None, environment)
    if ended.status == 2 and "already" in ended.err and not command.trains:
        marked = json.loads((out / ".vsehub.json").read_text())
        wrong = [] if marked["finished"] else [f"refused, though it is not finished: {ended.err}"]
        wrong += [f"finished, and {one}" for one in world.differences(out, base / "unbroken" / command.name / OUT)]
        if wrong:
            return wrong
        ended = forked.run(command.again(command, cwd, True), cwd, None, environment)
    if ended.status != 0:
        return [f"given again it ends with {ended.status}: {ended.err[-1500:]}"]
    wrong = [f"given again: the streams hold {word!r}: {ended.err[-1500:]}" for word in ended.broke]
    repeated = [epoch for epoch in re.findall(r"epoch (\d+): loss", ended.out) if int(epoch) < kept]
    if repeated and not command.sweeps:
        wrong.append(f"epochs {repeated} were trained again, though last.ckpt held {kept}")
    wrong += [f"{name} is left" for name in world.temporary(out)]
    return wrong + world.differences(out, base / "unbroken" / command.name / OUT)


def run(
    seconds: float | None,
    seed: int,
    cases: int | None = None,
    only: Sequence[str] = (),
    jobs: int = 2,
    case: Sequence[int] = (),
    base: Path | None = None,
) -> dict[str, Any]:
    """Torture the commands, `only` the named ones: for so many seconds, or so many cases (None: 120), or `case` alone.

    Returns {"cases", "kills", "by": {command: cases}, "signals", "seconds", "wrong": [{"case", "command", ...}]}.
    """
    began = time.monotonic()
    own = base is None
    base = Path(tempfile.mkdtemp(prefix="vsehub-kills-")) if base is None else base
    names = [name for name in world.commands(base) if not only or name in only]
    if not names:
        raise SystemExit(f"no command of {', '.join(only)} is known: {', '.join(world.commands(base))}")
    known = list(world.unbroken(base, names).values())
    limit = cases if cases is not None else (CASES if seconds is None else 10**9)
    numbers = case or range(limit)
    workers = []
    for worker in range(jobs):
        pid = os.fork()
        if pid == 0:
            _work(known, numbers[worker::jobs], seed, base, began, seconds, base / f"worker-{worker}.jsonl")
        workers.append(pid)
    for pid in workers:
        os.waitpid(pid, 0)
    told = [json.loads(line) for file in base.glob("worker-*.jsonl") for line in file.read_text().splitlines()]
    done = sorted((one for one in told if "case" in one), key=lambda one: one["case"])
    wrong = [one for one in told if one["wrong"]]
    if own and not wrong:
        shutil.rmtree(base)
    return {
        "cases": len(done),
        "kills": sum(one["landed"] for one in done),
        "by": dict(Counter(one["command"] for one in done)),
        "signals": dict(Counter(kill.split()[0] for one in done for kill in one["kills"])),
        "seconds": round(time.monotonic() - began, 1),
        "wrong": wrong,
        "left in": str(base) if wrong else None,
    }


def _work(
    known: list[Command], numbers: Sequence[int], seed: int, base: Path, began: float, seconds: float | None, told: Path
) -> None:
    """Never returns."""
    try:
        with told.open("w", buffering=1) as file:
            for number in numbers:
                if seconds is not None and time.monotonic() - began > seconds:
                    break
                file.write(json.dumps(torture(known[number % len(known)], number, seed, base)) + "\n")
    except BaseException:
        told.write_text(json.dumps({"wrong": [traceback.format_exc()]}) + "\n")
    finally:
        os._exit(0)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--only", default="", help="commands, separated by commas")
    parser.add_argument(
        "--case", default="", help="these cases alone, separated by commas; give --seed and --only as they were"
    )
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    given = parser.parse_args()
    only = [name for name in given.only.split(",") if name]
    case = [int(number) for number in given.case.split(",") if number]
    found = run(given.seconds, given.seed, given.cases, only, given.jobs, case)
    print(json.dumps(found, indent=1))
    raise SystemExit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
