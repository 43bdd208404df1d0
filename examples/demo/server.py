"""The demo's server process: the application under uvicorn. Exit code 75 asks for a restart."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING

import uvicorn

from examples.demo.app import create_app

if TYPE_CHECKING:
    import socket

RESTART = 75


class Server(uvicorn.Server):
    """uvicorn's server, which says when it can be reached."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print("ready", flush=True)


def main() -> int:
    logging.basicConfig(format="server: %(message)s")
    restart = False

    def stop() -> None:
        nonlocal restart
        restart = server.should_exit = True

    config = uvicorn.Config(
        create_app(stop),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        http="tidegate.stream:DetachProtocol",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
    server = Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C, after uvicorn has obeyed it
        server.run()
    return RESTART if restart else 0


if __name__ == "__main__":
    sys.exit(main())
