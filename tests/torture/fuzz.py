"""Fuzzing of every reader of files: damaged files end in a clear InputError or in the right answer.

Each case is a whole file with a few changes, drawn by (seed, reader, case). It is read in a forked process under a time
limit and a memory limit, so that a hang, a crash of a library and an allocation beyond the file are seen too. What is
wrong is printed with the command that repeats it.

    python tests/torture/fuzz.py --seconds 60 --seed 0
    python tests/torture/fuzz.py --seed 0 --reader index.faiss --case 17
"""

import argparse
import ctypes
import faulthandler
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
from mutations import Reader

from vsehub.checks import InputError

SECONDS = 5.0  # for a case
MAKING = 60.0  # for the valid files, once in each process
MEMORY = 1 << 30  # bytes that a case may take beyond what the process has
LONGEST = 4000  # characters of a message: beyond that it is not clear
WORKERS = min(4, os.cpu_count() or 1)
_ARENAS = -8  # glibc's M_ARENA_MAX


def run(
    seconds: float | None,
    seed: int,
    cases: int | None = None,
    readers: Mapping[str, Reader] | None = None,
    case: int | None = None,
    limit: float = SECONDS,
) -> dict[str, Any]:
    """{"cases": how many, "wrong": [what was wrong, how to repeat it], "by": {reader: its cases}}.

    Runs until `seconds` have passed or `cases` are done, whichever is set and comes first; case: that one of each
    reader alone. readers: those of `formats` by default. limit: seconds for a case.
    """
    if readers is None:
        from formats import READERS as readers
    todo = iter([(name, case) for name in readers]) if case is not None else _endless(list(readers))
    ends = time.monotonic() + seconds if seconds is not None and case is None else float("inf")
    by: Counter[str] = Counter()
    wrong: list[str] = []
    pool = [_Worker(readers, seed) for _ in range(WORKERS)]
    try:
        handed = 0
        busy = True
        while busy:
            for worker in pool:
                while worker.task is None and time.monotonic() < ends and (cases is None or handed < cases):
                    task = next(todo, None)
                    if task is None:
                        break
                    worker.hand(task)
                    handed += 1
            busy = [worker for worker in pool if worker.task is not None]
            if not busy:
                break
            first = min(worker.since + worker.making + limit for worker in busy)
            wait([worker.pipe for worker in busy], max(0.0, first - time.monotonic()))
            for worker in busy:
                task = worker.task
                said = worker.answer(limit)
                if said is None:
                    continue
                by[task[0]] += 1
                if said:
                    again = f"python tests/torture/fuzz.py --seed {seed} --reader '{task[0]}' --case {task[1]}"
                    wrong.append(f"{task[0]}, case {task[1]}: {said}. Again: {again}")
    finally:
        for worker in pool:
            worker.end()
    return {"cases": sum(by.values()), "wrong": wrong, "by": dict(by)}


def _endless(names: list[str]) -> Iterator[tuple[str, int]]:
    """Case 0 of every reader, then case 1 of every reader, ..."""
    return ((name, number) for number in count() for name in names)


class _Worker:
    """A forked process that reads one case after another; where it dies or hangs, another takes its place."""

    def __init__(self, readers: Mapping[str, Reader], seed: int):
        self._readers, self._seed = readers, seed
        self.task: tuple[str, int] | None = None
        self.since, self.making = 0.0, MAKING
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._readers, self._seed), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child starts its own
            self._process.start()
        theirs.close()

    def hand(self, task: tuple[str, int]) -> None:
        self.task, self.since, self.making = task, time.monotonic(), MAKING
        self.pipe.send(task)

    def answer(self, limit: float) -> str | None:
        """What was wrong with the task, "" where nothing was, None where it is not done yet."""
        try:
            if self.pipe.poll():
                said = self.pipe.recv()
                if said is None:  # it has only now begun: what the reader needed was made
                    self.since, self.making = time.monotonic(), 0.0
                    return None
                self.task = None
                return said
            if time.monotonic() - self.since < limit + self.making:
                return None
            said = f"no answer after {limit:g} s"
        except (EOFError, ConnectionError):
            self._process.join(10)
            code = self._process.exitcode
            name = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
            said = f"the process died ({name})"
        self.end()
        self.task = None
        self._start()
        return said

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _work(pipe: Connection, readers: Mapping[str, Reader], seed: int) -> None:
    """Read the cases that come through the pipe."""
    _quiet()
    whole: dict[str, tuple[Path, bytes]] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        tempfile.tempdir = folder
        while True:
            try:
                name, number = pipe.recv()
            except EOFError:
                return
            if name not in whole:
                own = Path(folder) / f"files-{len(whole)}"
                own.mkdir()
                try:
                    path = readers[name].make(own)
                    whole[name] = path, path.read_bytes()
                    readers[name].read(path)  # what a library loads at its first call is none of the case's
                except Exception as error:
                    pipe.send(f"the valid file cannot be read: {_told(error)}")
                    continue
            pipe.send(None)
            pipe.send(_case(readers[name], *whole[name], seed, name, number))


def _quiet() -> None:
    """No logs, no threads, no core files; warnings count as errors: nobody should see numpy's."""
    logging.disable(logging.CRITICAL)
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # libraries say there why they end the process
        os.dup2(nowhere, stream)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ResourceWarning)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).mallopt(_ARENAS, 1)  # each thread's own would reserve 64 MB of addresses
    import pyarrow
    import torch

    from vsehub.neighbors.faiss import load_faiss

    torch.set_num_threads(1)
    pyarrow.set_cpu_count(1)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # others reserve a gigabyte of addresses at once
    if (faiss := load_faiss()) is not None:
        faiss.omp_set_num_threads(1)


@contextmanager
def _limited() -> Iterator[None]:
    """Within the block the process gets no more than MEMORY bytes of addresses beyond those that it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _case(reader: Reader, path: Path, data: bytes, seed: int, name: str, number: int) -> str:
    """What was wrong with a case, "" where nothing was."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
    changed, kind = reader.mutate(data, rng)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(changed)
    try:
        with _limited():
            reader.read(path)
    except InputError as error:
        said = str(error).replace(str(path.parent.parent), "...")  # the same whenever the case is repeated
        if path.name not in said and path.parent.name not in said:
            return f"{kind}: the message does not name the file: {said[:300]}"
        return "" if len(said) <= LONGEST else f"{kind}: the message has {len(said)} characters: {said[:300]}"
    except BaseException as error:
        return f"{kind}: {_told(error)}".replace(str(path.parent.parent), "...")
    finally:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return ""


def _told(error: BaseException) -> str:
    """The error's type, where it was raised and what it says."""
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(error).__name__} at {where}: {str(error)[:300]}"


def main() -> None:
    from formats import READERS

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=None, help="how long; 60 where neither this nor --case is given"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=None, help="how many cases of all readers together")
    parser.add_argument("--reader", choices=list(READERS), help="this one alone")
    parser.add_argument("--case", type=int, default=None, help="this case alone")
    given = parser.parse_args()
    readers = READERS if given.reader is None else {given.reader: READERS[given.reader]}
    seconds = 60.0 if given.seconds is None and given.cases is None else given.seconds
    began = time.monotonic()
    found = run(seconds, given.seed, given.cases, readers, given.case)
    took = time.monotonic() - began
    for name, number in found["by"].items():
        print(f"{number:8d}  {name}")
    print(f"{found['cases']:8d}  cases of seed {given.seed} in {took:.1f} s ({found['cases'] / took:.0f} a second)")
    for text in found["wrong"]:
        print(f"wrong: {text}")
    print(f"{len(found['wrong'])} wrong")
    sys.exit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
