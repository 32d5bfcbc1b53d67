"""A TCP proxy on loopback that delays, corrupts, stalls and cuts its connections."""

import asyncio
import contextlib
import socket
import threading

CHUNK = 65536


_PORTS = iter(range(20000, 30000))


def free_address():
    """Return an address without a listener. Each test has its own network, so no other process takes it.

    The ports below those that the kernel gives to connections: the end of a connection of a daemon would have one of
    these until its listener starts.
    """
    for port in _PORTS:
        with socket.socket() as place:
            try:
                place.bind(("127.0.0.1", port))
            except OSError:
                continue
            return f"127.0.0.1:{port}"
    raise OSError("no port is free")


class Proxy:
    """Forwards connections to `target` ("host:port"), on a thread of its own."""

    def __init__(self, target, delay_s=0, corrupt_at=None, opening=b""):
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._delay_s = delay_s
        # The position of the byte to flip, among all bytes from the target.
        self._corrupt_at = corrupt_at
        # The proxy cuts a connection that does not begin with these bytes.
        self._opening = opening
        self._refused = 0
        self._passed = 0
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._call(self._start())

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self):
        self._open = asyncio.Event()
        self._open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = "127.0.0.1:%d" % self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            opening = await reader.readexactly(len(self._opening))
        except (asyncio.IncompleteReadError, OSError):
            opening = None
        if opening != self._opening:
            self._refused += 1
            writer.transport.abort()
            return
        try:
            their_reader, their_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(their_writer)
        their_writer.write(opening)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, their_writer, False), self._pump(their_reader, writer, True)
            )

    async def _pump(self, reader, writer, comes_back):
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._open.wait()
                if comes_back:
                    data = self._corrupt(data)
                self._loop.call_later(self._delay_s, writer.write, data)
                await writer.drain()
        self._loop.call_later(self._delay_s, writer.close)

    def _corrupt(self, data):
        at = None if self._corrupt_at is None else self._corrupt_at - self._passed
        self._passed += len(data)
        if at is None or not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]

    @property
    def passed(self):
        """Return the number of bytes from the target."""
        return self._passed

    @property
    def refused(self):
        """Return the number of connections that were cut because of their first bytes."""
        return self._refused

    def stall(self):
        """Stop all bytes; all connections stay open."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def resume(self):
        self._loop.call_soon_threadsafe(self._open.set)

    def cut(self):
        """Break every connection; serve new ones."""
        self._call(self._cut())

    async def _cut(self):
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def close(self):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self):
        self._server.close()
        await self._cut()
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
