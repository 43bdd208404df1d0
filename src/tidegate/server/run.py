"""Running the server: bind, tell where, serve until told to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from tidegate.errors import MissingExtra, ServeError, TidegateError
from tidegate.server.app import create_app
from tidegate.stream import DetachProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tidegate.server.settings import ServerSettings

__all__ = ["serve"]

_log = logging.getLogger("tidegate.server")

_SEND_BUFFER: Final = 64 * 1024
_BACKLOG: Final = 2048
_STOP_SECONDS: Final = 5
_NOT_STARTED: Final = 3


def serve(settings: ServerSettings, *, announce: Callable[[str], object] | None = None) -> int:
    """Run the server in this thread until SIGTERM or SIGINT, or until it fails.

    When it can be reached it says so in one line. On the first signal all streams end,
    then the server does; a second signal makes it stop at once.

    Args:
        settings: what to serve, and where.
        announce: takes the line that says where; by default it is printed. What it raises ends
            the server, in good order, and is raised then.

    Returns:
        The exit code of the process: 0 after a signal was obeyed, 3 if the application did
        not start for a reason that only the log can tell.

    Raises:
        BrokerUnavailable: the broker did not start.
        ConfigError: there is no such broker.
        ServeError: the address cannot be bound; the message says what to do.
        MissingExtra: uvloop is not installed.
    """
    try:
        import uvloop  # noqa: F401, PLC0415 - named here, not by uvicorn's traceback
    except ImportError as error:
        raise MissingExtra("uvloop", "server") from error
    app = _Startable(create_app(settings))
    listener = _bind(settings)
    url = _url(settings.host, listener.getsockname()[1])
    config = uvicorn.Config(
        app,
        http=DetachProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        # What one client does is no news, and the logs are the caller's to configure.
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    server = _Server(config, lambda: (announce or _say)(f"Tidegate serves {url}"))
    with listener, _stopped_by_signals(server), app.speaks_for_itself():
        try:
            server.run([listener])
        except SystemExit:
            # uvicorn's word for a lifespan that did not start; older ones just return.
            _log.debug("uvicorn did not start", exc_info=True)
    if app.failure is not None:
        raise app.failure
    if server.failure is not None:
        raise server.failure
    return 0 if server.started else _NOT_STARTED


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it can be reached."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_started = on_started
        self.failure: Exception | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        try:
            self._on_started()
        except Exception as error:  # noqa: BLE001 - `serve` raises it
            self.failure = error
            # Not at once: uvicorn would not end the application's lifespan.
            asyncio.get_running_loop().call_soon(setattr, self, "should_exit", True)


class _Startable:
    """The application; what is the user's to mend at its start is kept, not logged.

    uvicorn writes the traceback of whatever ends a lifespan.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: TidegateError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        failed: Message | None = None

        async def watched(message: Message) -> None:
            nonlocal failed
            if message["type"] == "lifespan.startup.failed":
                failed = message
            else:
                await send(message)

        try:
            await self._app(scope, receive, watched)
        except TidegateError as error:
            if failed is not None:
                self.failure = error
                failed = {**failed, "message": ""}
            raise
        finally:
            if failed is not None:
                await send(failed)

    @contextmanager
    def speaks_for_itself(self) -> Iterator[None]:
        """Keep uvicorn's word about a start that failed from the log: it says nothing."""

        def has_news(_: logging.LogRecord) -> bool:
            return self.failure is None

        log = logging.getLogger("uvicorn.error")
        log.addFilter(has_news)
        try:
            yield
        finally:
            log.removeFilter(has_news)


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Let a signal that comes before uvicorn listens to it, or again after, stop the server.

    When it has obeyed a signal, uvicorn raises it once more for whoever listened before:
    without this the process would end by the signal, not with an exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bind(settings: ServerSettings) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ServeError(f"--host {host!a} is no address of this machine: {error}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: what a client that does not read can pile up in the
        # kernel is bounded too, and is noticed soon.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ServeError(_why_not(host, port, error)) from None
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use; stop what listens there, "
            "or choose another with --port"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023 with --port"
    return f"{host} port {port} cannot be bound: {error.strerror}; see --host and --port"


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the one line that the server says
