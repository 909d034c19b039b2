"""Commands that are killed at random moments, given again, and held against unbroken ones, file for file.

python tools/torture/kills.py --seconds 300 --seed 0 [--only train rerank] [--case 17]
"""

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import calls
import forked
import world
from world import OUT, Command

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
STATUS = {signal.SIGKILL: 137, signal.SIGTERM: 143, signal.SIGINT: 130}


@dataclass(frozen=True)
class Kill:
    """A signal, and when it comes: after a share of the unbroken run's time, or at the n-th call of a function.

    worker: whether one of the processes that the command starts gets it.
    """

    signal: signal.Signals
    moment: float = 0.0
    call: str | None = None
    number: int = 0
    when: str = "before"
    worker: bool = False


def drawn(command: Command, draw: random.Random) -> Kill:
    """A third of the kills come at calls that write, the others at any moment."""
    number = draw.choice(SIGNALS)
    called = [name for name in calls.CALLS if command.calls[name]]
    if called and draw.random() < 1 / 3 and not command.workers:
        call = draw.choice(called)
        return Kill(number, 0, call, draw.randint(1, command.calls[call]), draw.choice(("before", "after")))
    return Kill(number, draw.random(), worker=command.workers and draw.random() < 1 / 2)


def torture(command: Command, number: int, seed: int, base: Path) -> list[str]:
    """What is wrong with one case: kill, look, once in a while kill again, finish, compare."""
    draw = random.Random(f"{seed} {number}")
    cwd = base / "cases" / str(number)
    kills = [drawn(command, draw) for _ in range(1 + (draw.random() < 0.2))]
    wrong: list[str] = []
    try:
        cwd.mkdir(parents=True)
        for kill in kills:
            wrong += after(command, kill, killed(command, kill, cwd, base), cwd / OUT)
        wrong += finished(command, cwd, base)
    except Exception:
        wrong.append(traceback.format_exc()[-900:])
    if not wrong:
        shutil.rmtree(cwd)
    return [f"seed {seed} case {number}: {command.name}, {kills}, in {cwd}: {text}" for text in wrong]


def killed(command: Command, kill: Kill, cwd: Path, base: Path) -> forked.Ended:
    """Run the command until it is killed, or to its end where the moment comes too late."""
    arguments, seconds = command.again(command, cwd, False), kill.moment * command.seconds
    if kill.call is not None:
        at = partial(calls.kill_at, kill.call, kill.number, kill.when, kill.signal)
        ended = forked.run(arguments, cwd, at, world.environment(base))
        return replace(ended, hit=ended.status != 0)
    if not kill.worker:
        return forked.run(arguments, cwd, environment=world.environment(base), kill=(kill.signal, seconds))
    running = forked.Running(arguments, cwd, environment=world.environment(base))
    running.wait(until=seconds)
    while not running.poll():
        for worker in workers(running.pid):
            os.kill(worker, kill.signal)
            ended = running.result()
            return replace(ended, hit=ended.status != 0)
        time.sleep(0.01)
    return running.result()


def workers(pid: int) -> list[int]:
    """The process of rank 1 among those that a process has started; none before its Python runs."""
    wrong = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"\0LOCAL_RANK=1\0" in b"\0" + (folder / "environ").read_bytes():
                wrong.append(int(folder.name))
    return wrong


def after(command: Command, kill: Kill, ended: forked.Ended, out: Path) -> list[str]:
    """What is wrong right after the kill."""
    wrong = [f"the streams hold {word!r}: {ended.err[-1500:]}" for word in ended.broke] + world.damaged(out)
    # Where another process is lost, the first says so, or Lightning ends it.
    ended_by_lightning = (STATUS[signal.SIGKILL],) if command.workers else ()
    expected = (1 if kill.worker else STATUS[kill.signal], *ended_by_lightning)
    if not ended.hit:
        expected = (0, 2) if "already" in ended.err else (0,)
    if ended.status not in expected:
        wrong.append(f"status {ended.status}, not {expected}: {ended.err[-800:]}")
    said = [line for line in ended.err.splitlines() if line.startswith("vsehub")]
    if len(said) > 1 and not command.workers:
        wrong.append(f"{len(said)} lines on stderr: {said}")
    epochs = len(re.findall(r"epoch \d+: loss", ended.out))
    if command.trains and not command.sweeps and epochs > 1 and kept_epochs(out) < epochs - 1:
        wrong.append(f"last.ckpt holds {kept_epochs(out)} epochs of {epochs}")
    return wrong


def kept_epochs(out: Path) -> int:
    """How many epochs last.ckpt holds."""
    import torch

    last = out / "checkpoints" / "last.ckpt"
    if not last.is_file():
        return 0
    return len(torch.load(last, map_location="cpu", weights_only=True)["callbacks"]["RunRecorder"]["rows"])


def finished(command: Command, cwd: Path, base: Path) -> list[str]:
    """Give the command again and hold what it wrote against what the unbroken one wrote."""
    out, whole, epochs = cwd / OUT, base / "unbroken" / command.name / OUT, kept_epochs(cwd / OUT)
    ended = forked.run(command.again(command, cwd, False), cwd, environment=world.environment(base))
    if ended.status == 2 and "already" in ended.err and not command.trains:
        wrong = [f"refused as finished, and {difference}" for difference in world.differences(out, whole)]
        if wrong:
            return wrong
        ended = forked.run(command.again(command, cwd, True), cwd, environment=world.environment(base))
    if ended.status != 0 or ended.broke:
        return [f"given again it ends with {ended.status}: {ended.err[-1500:]}"]
    repeated = [epoch for epoch in re.findall(r"epoch (\d+): loss", ended.out) if int(epoch) < epochs]
    wrong = [f"epochs {repeated} were trained again"] if repeated and not command.sweeps else []
    return wrong + [f"{name} is left" for name in world.temporary(out)] + world.differences(out, whole)


def run(seconds: float, seed: int, only: Sequence[str] = (), jobs: int = 2, case: Sequence[int] = ()) -> dict[str, Any]:
    """{"cases": how many, "wrong": texts} of the commands, `only` the named ones, for so many seconds, or of `case`."""
    base = Path(tempfile.mkdtemp(prefix="vsehub-kills-"))
    known = list(world.unbroken(base, [name for name in world.commands(base) if not only or name in only]).values())
    wrong, count, until = [], 0, time.monotonic() + seconds
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        while time.monotonic() < until if not case else count < len(case):
            numbers = case or range(count, count + 4 * jobs)
            futures = [pool.submit(torture, known[number % len(known)], number, seed, base) for number in numbers]
            wrong += [text for future in futures for text in future.result()]
            count += len(numbers)
    if not wrong:
        shutil.rmtree(base)
    return {"cases": count, "wrong": wrong}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=(), help="commands")
    parser.add_argument("--case", nargs="+", type=int, default=(), help="these cases; --seed and --only as they were")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    result = run(**vars(parser.parse_args()))
    print(*result["wrong"], f"{result['cases']} cases, {len(result['wrong'])} wrong", sep="\n")
    sys.exit(bool(result["wrong"]))


if __name__ == "__main__":
    main()
