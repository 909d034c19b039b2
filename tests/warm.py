"""Commands that are killed or run together, in forks of one process that has imported torch, Lightning and Hydra.

What a fork does is what the console script does, in a session, a working folder and an environment of its own. All
workers of pytest-xdist share the process; it ends when pytest has.

    python tests/warm.py LINK PID      LINK: where the link to its socket is to be; PID: pytest's
"""

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Client, Listener
from pathlib import Path

from filelock import FileLock

WARM = ("vsehub.cli.train", "vsehub.training.build", "vsehub.training.train", "vsehub.evaluation.measurement")
TORTURE = Path(__file__).parents[1] / "tools" / "torture"


def started(folder, environment, pytest):
    """The link to the process's socket in a folder that all workers share. pytest: the process that it ends with."""
    link, log = folder / "warm", folder / "warm.log"
    with FileLock(folder / "warm.lock"):
        if not link.is_symlink():
            with log.open("w") as opened:
                command = [sys.executable, __file__, str(link), str(pytest)]
                process = subprocess.Popen(command, env=environment, stdout=opened, stderr=opened)
            while not link.is_symlink():
                assert process.poll() is None, log.read_text()
                time.sleep(0.02)
    return link


class Command:
    """A command in a fork: as much of `subprocess.Popen` as tests use. log: the file for its output."""

    def __init__(self, link, arguments, cwd, environment, log):
        self.returncode, self._server = None, Client(os.readlink(link))
        self._server.send((arguments, Path(cwd).absolute(), environment, log))
        self.pid = self._server.recv()

    def wait(self, timeout=None):
        """Wait for the end; the status, below 0 after a signal."""
        if self.returncode is None:
            if not self._server.poll(timeout):
                raise subprocess.TimeoutExpired("the command", timeout)
            self.returncode = self._server.recv()
        return self.returncode

    def poll(self):
        """The status, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def serve(link, pytest):
    """Import what most commands need, then fork for each command, until pytest has ended."""
    import torch

    for name in WARM:
        import_module(name)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a child's collections leave these pages as they are, shared
    signal.signal(signal.SIGALRM, lambda *_: os.path.exists(f"/proc/{pytest}") or sys.exit())
    signal.setitimer(signal.ITIMER_REAL, 1, 1)  # no child has it
    with Listener(family="AF_UNIX", backlog=64) as listener:
        os.symlink(listener.address, link)
        while True:
            connection = listener.accept()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if os.fork() == 0:
                try:
                    answer(connection)
                finally:
                    os._exit(0)
            connection.close()


def answer(connection):
    """Run the command that is asked for; its process id is sent when it begins, its status when it has ended."""
    import forked

    arguments, cwd, environment, log = connection.recv()

    def before():
        os.environ.clear()
        os.environ.update(environment)

    running = forked.Running(arguments, cwd, before, log=(log, log))
    connection.send(running.pid)
    running.wait(limit=float("inf"))
    connection.send(os.waitstatus_to_exitcode(running._status))


if __name__ == "__main__":
    sys.path.insert(0, str(TORTURE))
    serve(*sys.argv[1:])
