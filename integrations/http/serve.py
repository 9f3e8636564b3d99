"""Listening, and stopping without hurry."""

from __future__ import annotations

import asyncio
import ctypes
import socket
from contextlib import suppress

import uvicorn

from specedit.editor import SpecEditor
from specedit.integrations.http.app import create_app
from specedit.integrations.http.log import to_stderr
from specedit.integrations.http.runner import Runner
from specedit.integrations.http.settings import Settings, address_of
from specedit.types import SpecEditError

_M_ARENA_MAX = -8  # of mallopt(3)
_TIDY_SECONDS = 10  # between looks for memory that can be given back
_NOT_GLIBC = suppress(OSError, AttributeError, TypeError)  # other systems do without
_LAST_SECONDS = 2  # for the last answers to reach their clients


def listen(settings: Settings) -> socket.socket:
    """Take the port: before the model is loaded, as that takes long.

    Raises:
        SpecEditError: it cannot be had.
    """
    address = address_of(settings.host)
    family = socket.AF_INET6 if address is not None and address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((settings.host.strip("[]"), settings.port), family=family, backlog=1024)
    except OSError as error:
        raise SpecEditError(
            f"Cannot listen on {settings.host}:{settings.port} ({error.strerror or error}): choose another "
            "--port or --host."
        ) from error


class Server(uvicorn.Server):
    """Gives running answers their time before it stops."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        config = uvicorn.Config(
            create_app(runner),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(runner.settings.grace) + 3 * _LAST_SECONDS,  # `_hang_up` is sooner
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._tidying = asyncio.create_task(_tidy())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._runner.close(self._runner.settings.grace))
        loop = asyncio.get_running_loop()
        ending.add_done_callback(lambda _: loop.call_later(_LAST_SECONDS, self._hang_up))
        await super().shutdown(sockets)
        if self.force_exit:  # as after Ctrl-C again
            await self._runner.close()
        await ending
        self._tidying.cancel()
        self._runner.editor.save()  # requests themselves write nothing

    def _hang_up(self) -> None:
        """Some clients never finish their requests: nobody waits for them."""
        self.force_exit = True
        for connection in list(self.server_state.connections):
            if connection.transport:
                connection.transport.close()


def _share_heap() -> None:
    """Let all threads take memory from one heap. By default glibc gives each its own, and each of these keeps
    what its largest answer took: in a soak of 100 seconds 5 GB instead of 3.5."""
    with _NOT_GLIBC:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


async def _tidy() -> None:
    """Give the system back what was freed. By default glibc keeps whatever lies below memory that is in use,
    as caches of finished answers are."""
    with _NOT_GLIBC:
        trim = ctypes.CDLL(None).malloc_trim
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            await asyncio.to_thread(trim, 0)


def run(editor: SpecEditor, settings: Settings, sock: socket.socket) -> None:
    """Serve until told to stop."""
    to_stderr()
    _share_heap()
    Server(Runner(editor, settings)).run(sockets=[sock])
