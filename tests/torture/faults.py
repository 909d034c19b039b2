"""Commands on machines that fail them: full disks, no memory, no rights, wrong clocks, others in the same folder.

python tests/torture/faults.py --seconds 300 --seed 0 [--only full_disk,no_memory] [--case 17]

Needs root for full_disk, full_temporary (a tmpfs is mounted) and read_only (rights are given away); without, they are
left out and named in "skipped".
"""

import argparse
import errno
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calls
import forked
import world
from world import OUT, Command

NOBODY = 65534


@dataclass(frozen=True)
class Case:
    """Where a fault is tried, with which command, and what chance decides."""

    command: Command
    cwd: Path
    base: Path
    draw: random.Random

    @property
    def environment(self) -> dict[str, str]:
        """For commands of the case."""
        return {"XDG_CACHE_HOME": str(self.base / "cache"), "TMPDIR": str(self.base)}

    @property
    def expected(self) -> Path:
        """What an unbroken command wrote."""
        return self.base / "unbroken" / self.command.name / OUT

    def run(self, before: Callable[[], None] | None = None, again: bool = False, **environment: str) -> forked.Ended:
        """Run the command, or what a user gives after it was broken off."""
        arguments = self.command.again(self.command, self.cwd, False) if again else self.command.arguments
        if any((self.cwd / OUT).rglob("traceback.txt")):
            arguments = (*arguments, "retry_failed=true")
        return forked.run(arguments, self.cwd, before, self.environment | environment)

    def refused(self, ended: forked.Ended, *statuses: int, words: str = "") -> list[str]:
        """What is wrong with an end that should be one line and one of `statuses`, and has left only whole files."""
        sweeps = self.command.sweeps  # a failed run of a sweep is told in its log, and ends nothing
        wrong = [f"the streams hold {word!r}: {ended.err[-1500:]}" for word in ended.broke if not sweeps]
        if ended.status not in statuses:
            wrong.append(f"status {ended.status}, not {statuses}: {ended.err[-800:]}")
        if len(ended.said) != 1 and not (sweeps and "  failed: " in ended.err and "Traceback" not in ended.err):
            wrong.append(f"{len(ended.said)} lines on stderr, not one: {ended.err[-800:]}")
        if words not in ended.err:
            wrong.append(f"{words!r} is not said: {ended.err[-800:]}")
        return wrong + world.damaged(self.cwd / OUT)

    def ends(self) -> list[str]:
        """Give the command again, on a sound machine: what is wrong with its end and its files."""
        ended = self.run(again=True)
        wrong = [f"given again: the streams hold {word!r}: {ended.err[-1500:]}" for word in ended.broke]
        if ended.status != 0:
            return [*wrong, f"given again it ends with {ended.status}: {ended.err[-1500:]}"]
        wrong += [f"{name} is left" for name in world.temporary(self.cwd / OUT)]
        return wrong + world.differences(self.cwd / OUT, self.expected)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of `size` bytes in `folder`."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "none", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=False) and None


def full_disk(case: Case) -> list[str]:
    """The disk of the folder fills up somewhere on the way, and is made larger."""
    out = case.cwd / OUT
    needed = sum(file.stat().st_size for file in case.expected.rglob("*") if file.is_file())
    size = 4096 * max(2, int(needed * case.draw.uniform(0.05, 0.85)) // 4096)
    with small_disk(out, size):
        ended = case.run()
        wrong = [] if ended.status == 0 else case.refused(ended, 1, 2)
        if ended.status not in (0, 2) and not any(word in ended.err for word in ("full", "No space", "disk")):
            wrong.append(f"nothing is said of the disk: {ended.err}")
        wrong += [f"{name} is left" for name in world.temporary(out) if name.endswith(world.TEMPORARY)]
        subprocess.run(["mount", "-o", "remount,size=512m", out], check=True)
        return [f"{size} bytes: {one}" for one in wrong + (case.ends() if ended.status else [])]


def full_temporary(case: Case) -> list[str]:
    """The disk for temporary files is full: what needs none ends well, what needs some ends in a line."""
    folder = case.cwd / "temporary"

    def before() -> None:
        tempfile.tempdir = None

    with small_disk(folder, 65536):
        (folder / "filler").write_bytes(b"0" * 61440)
        ended = case.run(before, TMPDIR=str(folder))
    wrong = [] if ended.status == 0 else case.refused(ended, 1, 2)
    return wrong + (case.ends() if ended.status else world.differences(case.cwd / OUT, case.expected))


def quota(case: Case) -> list[str]:
    """From some write on each is refused for want of quota."""
    number = case.draw.randint(1, max(1, case.command.calls["fsync"]))
    ended = case.run(lambda: calls.refuse("fsync", number, errno.EDQUOT))
    if ended.status == 0:
        return [f"fsync {number} of {case.command.calls['fsync']} was refused and the command ends well"]
    wrong = case.refused(ended, 1)
    return [f"from fsync {number}: {one}" for one in [*wrong, *case.ends()]]


def large_files_refused(case: Case) -> list[str]:
    """No file may grow beyond a limit."""
    sizes = sorted(file.stat().st_size for file in case.expected.rglob("*") if file.is_file())
    limit = max(200, int(sizes[-1] * case.draw.uniform(0.1, 0.9)))
    ended = case.run(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    wrong = [] if ended.status == 0 else case.refused(ended, 1, 2)
    return [f"{limit} bytes: {one}" for one in [*wrong, *(case.ends() if ended.status else [])]]


def read_only(case: Case) -> list[str]:
    """The folder belongs to somebody else."""
    (case.cwd / OUT).mkdir()
    os.chmod(case.cwd / OUT, 0o755)

    def before() -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    ended = case.run(before)
    wrong = case.refused(ended, 1, 2)
    return wrong + [f"{file.name} was written" for file in (case.cwd / OUT).iterdir()] + case.ends()


def no_memory(case: Case) -> list[str]:
    """A limit on memory, a little above what the process has at its start."""
    more = case.draw.choice((1, 4, 16, 48, 96, 160, 256, 400)) << 20

    def before() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    ended = case.run(before)
    wrong = [] if ended.status == 0 else case.refused(ended, 1, 2)
    return [f"{more >> 20} MiB: {one}" for one in [*wrong, *(case.ends() if ended.status else [])]]


def clock_set_back(case: Case) -> list[str]:
    """Killed, and given again a day earlier, while the files there are a day younger than now."""
    number = case.draw.randint(1, max(1, case.command.calls["replace"]))
    asked = {"call": "replace", "number": number, "when": "after", "signal": 9}
    ended = case.run(calls.install, **{calls.VARIABLE: json.dumps(asked)})
    later = time.time() + 86400
    for path in (case.cwd / OUT).rglob("*"):
        os.utime(path, (later, later))

    def before() -> None:
        now = time.time
        time.time = lambda: now() - 86400

    again = case.run(before, again=True)
    if again.status == 2 and "already" in again.err:
        return []
    wrong = [f"status {ended.status}, not 137"] if ended.status != 137 else []
    if again.status != 0 or again.broke:
        return [*wrong, f"given again it ends with {again.status}: {again.err[-1500:]}"]
    wrong += [f"{name} is left" for name in world.temporary(case.cwd / OUT)]
    return wrong + world.differences(case.cwd / OUT, case.expected)


def two_at_once(case: Case) -> list[str]:
    """The same command twice at once: the second is refused in a line, the first ends well."""
    first = forked.Running(case.command.arguments, case.cwd, None, case.environment, "first")
    while not (case.cwd / OUT / ".lock").exists():
        if first.poll():
            return [f"it ended before it had locked its folder: {first.result()}"]
        time.sleep(0.002)
    time.sleep(case.draw.uniform(0, 0.3) * case.command.seconds)
    second = forked.run(case.command.arguments, case.cwd, None, case.environment)
    ended = first.result()
    wrong = [f"the second: {one}" for one in case.refused(second, 2)]
    if ended.status != 0 or ended.broke:
        wrong.append(f"the first ends with {ended.status}: {ended.err[-1000:]}")
    return wrong + world.differences(case.cwd / OUT, case.expected)


def together(case: Case) -> list[str]:
    """The same command twice at once, where the two share the work: both end well."""
    first = forked.Running(case.command.arguments, case.cwd, None, case.environment, "first")
    time.sleep(case.draw.uniform(0, 0.8) * case.command.seconds)
    second = forked.Running(case.command.arguments, case.cwd, None, case.environment, "second")
    wrong = []
    for name, ended in (("first", first.result()), ("second", second.result())):
        if ended.status != 0 or ended.broke:
            wrong.append(f"the {name} ends with {ended.status}: {ended.err[-1500:]}")
    wrong += [f"{name} is left" for name in world.temporary(case.cwd / OUT)]
    return wrong + world.differences(case.cwd / OUT, case.expected)


def vectors_change(case: Case) -> list[str]:
    """A file of vectors is replaced, overwritten, cut short or appended to while it is searched."""
    how = case.draw.choice(("replaced", "overwritten", "cut short", "appended to"))
    side = case.draw.choice(("queries", "items"))
    shared, own = case.base / "world" / f"{side}.npy", case.cwd / f"{side}.npy"
    shutil.copy2(shared, own)
    number = case.draw.randint(1, max(1, case.command.calls["replace"] - 3))

    def change() -> None:
        content = shared.read_bytes()
        if how == "replaced":
            (case.cwd / "new.npy").write_bytes(content[:-4096] + bytes(4096))
            os.rename(case.cwd / "new.npy", own)
        elif how == "overwritten":
            with own.open("r+b") as file:
                file.seek(len(content) // 2)
                file.write(bytes(4096))
        elif how == "cut short":
            os.truncate(own, len(content) // 2)
        else:
            with own.open("ab") as file:
                file.write(bytes(64))

    def before() -> None:
        real, seen = os.replace, 0

        def replace(*given: Any, **named: Any) -> None:
            nonlocal seen
            real(*given, **named)
            seen += 1
            if seen == number:
                change()

        os.replace = replace

    arguments = [f"{side}={own}" if one.startswith(f"{side}=") else one for one in case.command.arguments]
    ended = forked.run(arguments, case.cwd, before, case.environment)
    label = f"{side} {how} after {number} files: "
    if how == "cut short" and ended.status == 135:  # SIGBUS: the kernel ends a process that reads what is gone
        wrong = world.damaged(case.cwd / OUT)
    else:
        wrong = case.refused(ended, 2, words="changed while being read")
    if (case.cwd / OUT / "result.json").exists():
        wrong.append("there is a result")
    return [label + one for one in [*wrong, *case.ends()]]


def checkpoint_replaced(case: Case) -> list[str]:
    """The checkpoint is replaced while it is read, or when it has been: the record never names another model."""
    early = case.draw.random() < 0.5
    original = case.base / "unbroken" / "train" / OUT / "checkpoints" / "best.safetensors"
    own = case.cwd / "best.safetensors"
    shutil.copy2(original, own)

    def before() -> None:
        import vsehub.evaluation.measurement as measurement
        import vsehub.evaluation.trained as trained

        module, name = (trained, "read_checkpoint") if early else (measurement, "evaluate")
        real = getattr(module, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            found = real(*given, **named)
            (case.cwd / "new").write_bytes(original.read_bytes()[:-8] + bytes(8))
            os.rename(case.cwd / "new", own)
            return found

        setattr(module, name, wrapped)

    arguments = [f"checkpoint={own}" if one.startswith("checkpoint=") else one for one in case.command.arguments]
    ended = forked.run(arguments, case.cwd, before, case.environment)
    if early:
        wrong = case.refused(ended, 2, words="changed while being read")
        return [f"while it is read: {one}" for one in wrong + case.ends()]
    if ended.status != 0:
        return [f"replaced afterwards: status {ended.status}: {ended.err[-800:]}"]
    return [f"replaced afterwards: {one}" for one in world.differences(case.cwd / OUT, case.expected)]


ALL = ("train", "train-bank", "sweep", "extract", "rerank", "diagnose", "evaluate", "report")
FAULTS: dict[Callable[[Case], list[str]], tuple[str, ...]] = {
    full_disk: ("train", "sweep", "extract", "rerank", "diagnose", "evaluate", "report"),
    full_temporary: ("train", "rerank", "report"),
    quota: ALL,
    large_files_refused: ("train", "extract", "rerank", "report"),
    read_only: ("train", "sweep", "extract", "rerank", "diagnose", "evaluate", "report"),
    no_memory: ALL,
    clock_set_back: ("train", "train-bank", "sweep", "extract", "rerank"),
    two_at_once: ("train", "rerank", "diagnose"),
    together: ("extract", "sweep"),
    vectors_change: ("rerank", "diagnose"),
    checkpoint_replaced: ("evaluate",),
}
OF_ROOT = {full_disk, full_temporary, read_only}
REPEATED = {no_memory: 2, full_disk: 2, vectors_change: 4, checkpoint_replaced: 4, together: 3}  # times in a full run


def planned(only: Sequence[str], on: Sequence[str] = ()) -> list[tuple[Callable[[Case], list[str]], str]]:
    """Each fault with each of its commands, in a full run."""
    return [
        (fault, name)
        for repeat in range(max(REPEATED.values()))
        for fault, names in FAULTS.items()
        for name in names
        if (not only or fault.__name__ in only) and (not on or name in on) and repeat < REPEATED.get(fault, 1)
    ]


def run(
    seconds: float | None,
    seed: int,
    cases: int | None = None,
    only: Sequence[str] = (),
    jobs: int = 2,
    case: Sequence[int] = (),
    on: Sequence[str] = (),
) -> dict[str, Any]:
    """Try faults, `only` the named ones, `on` these commands alone: for so many seconds, or cases (None: each once).

    Returns {"cases", "by": {fault: cases}, "seconds", "skipped", "wrong": [{"case", "fault", "command", "wrong"}]}.
    """
    began = time.monotonic()
    skipped = [] if os.getuid() == 0 else sorted(fault.__name__ for fault in OF_ROOT)
    plan = [(fault, name) for fault, name in planned(only, on) if fault.__name__ not in skipped]
    if not plan:
        raise SystemExit(f"no such fault; there are {', '.join(fault.__name__ for fault in FAULTS)}")
    base = Path(tempfile.mkdtemp(prefix="vsehub-faults-"))
    os.chmod(base, 0o755)
    known = world.unbroken(base, sorted({name for _, name in plan}))
    limit = cases if cases is not None else (len(plan) if seconds is None else 10**9)
    numbers = case or range(limit)
    workers = []
    for worker in range(jobs):
        pid = os.fork()
        if pid == 0:
            try:
                with (base / f"worker-{worker}.jsonl").open("w", buffering=1) as file:
                    for number in numbers[worker::jobs]:
                        if seconds is not None and time.monotonic() - began > seconds:
                            break
                        fault, name = plan[number % len(plan)]
                        file.write(json.dumps(tried(fault, known[name], number, seed, base)) + "\n")
            finally:
                os._exit(0)
        workers.append(pid)
    for pid in workers:
        os.waitpid(pid, 0)
    told = [json.loads(line) for file in base.glob("worker-*.jsonl") for line in file.read_text().splitlines()]
    wrong = sorted((one for one in told if one["wrong"]), key=lambda one: one["case"])
    if not wrong:
        shutil.rmtree(base)
    return {
        "cases": len(told),
        "by": dict(Counter(one["fault"] for one in told)),
        "seconds": round(time.monotonic() - began, 1),
        "skipped": skipped,
        "wrong": wrong,
        "left in": str(base) if wrong else None,
    }


def tried(fault: Callable[[Case], list[str]], command: Command, number: int, seed: int, base: Path) -> dict[str, Any]:
    """One case."""
    cwd = base / "cases" / str(number)
    cwd.mkdir(parents=True)
    try:
        wrong = fault(Case(command, cwd, base, random.Random(f"{seed} {number}")))
    except Exception as error:
        wrong = [f"{type(error).__name__}: {error} {traceback.format_exc()[-800:]}"]
    if not wrong:
        shutil.rmtree(cwd)
    return {"case": number, "fault": fault.__name__, "command": command.name, "wrong": wrong}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--only", default="", help="faults, separated by commas")
    parser.add_argument("--on", default="", help="commands, separated by commas")
    parser.add_argument(
        "--case", default="", help="these cases alone, separated by commas; give --seed, --only and --on as they were"
    )
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    given = parser.parse_args()
    only, on = ([name for name in text.split(",") if name] for text in (given.only, given.on))
    case = [int(number) for number in given.case.split(",") if number]
    found = run(given.seconds, given.seed, given.cases, only, given.jobs, case, on)
    print(json.dumps(found, indent=1))
    raise SystemExit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
