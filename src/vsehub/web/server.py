"""The server: a socket that is bound before anything is loaded, and uvicorn on it until an interrupt."""

import socket

import uvicorn
from fastapi import FastAPI

from vsehub.checks import InputError

AT_ONCE = 200  # connections; further ones get status 503
IDLE_SECONDS = 5


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to a port; 0 takes a free one. Raises InputError if it is in use or not this machine's."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With TCP named, asyncio switches off Nagle's algorithm, which delays each part of an answer by 40 ms.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(2048)  # from here on no other program can take the port
    except (OSError, OverflowError) as error:
        raise InputError(
            f"nothing can be served at {host}:{port} ({getattr(error, 'strerror', None) or error}); give another "
            "port=, or port=0 for a free one"
        ) from error
    return bound


def address(bound: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}"


def run(application: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, which uvicorn raises again when it has ended."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=AT_ONCE,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=IDLE_SECONDS,
        lifespan="off",
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[bound])
