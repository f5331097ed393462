"""A TCP proxy that can stop forwarding, like a network that drops all packets."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

BUFFER_BYTES = 65536


class CutProxy:
    """Forwards connections on `port` of loopback to another port of loopback."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._connected = asyncio.Event()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        server = self._run(asyncio.start_server(self._forward, "127.0.0.1", 0))
        self.port: int = server.sockets[0].getsockname()[1]
        self.restore()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def cut(self) -> None:
        """Forward nothing more, in either direction; connections stay open."""
        self._loop.call_soon_threadsafe(self._connected.clear)

    def restore(self) -> None:
        """Forward again, first what has arrived meanwhile."""
        self._loop.call_soon_threadsafe(self._connected.set)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._connected.wait()
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pipe(reader, upstream[1]), self._pipe(upstream[0], writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while received := await reader.read(BUFFER_BYTES):
                await self._connected.wait()
                writer.write(received)
                await writer.drain()
        await self._connected.wait()
        writer.close()
