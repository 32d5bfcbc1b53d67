"""A network of proxies on loopback for a whole cluster. Nodes reach each other and the shards through
it, so each pair of daemons can be disturbed separately."""

import asyncio
import contextlib
import os
import socket
import struct
import threading

CHUNK = 65536


# From linux/sock_diag.h and linux/inet_diag.h.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ANY = 0xFFFFFFFF
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
# family, state, timer, retransmissions, the connection, expiry, two queues, user, inode
ANSWER = struct.Struct("=4B48s5I")


def inode_of(local, remote):
    """Return the inode of the socket at the end `local` of an IPv4 connection; 0 if no process has it.

    Asks the kernel for this connection (sock_diag(7)): to read /proc/net/tcp takes 20 ms and
    more, in which the proxies would pass nothing on."""
    query = struct.pack("=4BI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ANY)
    query += struct.pack("!HH", local[1], remote[1])
    query += socket.inet_aton(local[0]).ljust(16, b"\0") + socket.inet_aton(remote[0]).ljust(16, b"\0")
    query += struct.pack("=III", 0, ANY, ANY)  # on any interface, with any cookie
    header = HEADER.pack(HEADER.size + len(query), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(header + query, (0, 0))
        answer = kernel.recv(4096)
    # An error, for a connection that has ended, has another type.
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return 0
    return ANSWER.unpack_from(answer, HEADER.size)[-1]


def process_of(local, remote, pids):
    """Return the key in `pids` (key -> process id) of the process with the end `local` of the connection
    with `remote`; None if no process has it."""
    inode = inode_of(local, remote)
    for key, pid in list(pids.items()) if inode else ():
        # Processes can end and descriptors can close during the search.
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") == f"socket:[{inode}]":
                        return key
    return None


class Pair:
    """The state of the link between two daemons."""

    def __init__(self):
        self.open = asyncio.Event()
        self.open.set()
        self.refused = False
        self.delay_s = 0
        # Seconds for each byte, in each direction.
        self.byte_s = 0
        self.corrupt = 0
        self.passed = 0
        self.transports = set()


class Network:
    """Proxied addresses of daemons, served on a thread of its own. One other thread can call the methods."""

    def __init__(self):
        self.pids = {}
        # Bytes flipped since the start.
        self.corrupted = 0
        self._pairs = {}
        self._servers = []
        self._loop = asyncio.new_event_loop()
        self._never = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def door(self, target, name, source=None):
        """Return an address that leads to `target`, the daemon `name`; for `source`, or for any source."""
        return self._call(self._door(target, name, source))

    async def _door(self, target, name, source):
        host, port = target.rsplit(":", 1)

        async def serve(reader, writer):
            # Closing the network is not an error of a connection.
            with contextlib.suppress(asyncio.CancelledError):
                await self._serve(reader, writer, (host, int(port)), name, source)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        return "127.0.0.1:%d" % server.sockets[0].getsockname()[1]

    def _pair(self, one, other):
        return self._pairs.setdefault(frozenset((one, other)), Pair())

    async def _serve(self, reader, writer, target, name, source):
        if source is None:
            ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            source = process_of(*ends, self.pids)
        pair = self._pair(source, name)
        # An unidentified connection could join two daemons that are partitioned.
        if source is None or pair.refused:
            writer.transport.abort()
            return
        pair.transports.add(writer.transport)
        ends = {writer.transport}
        try:
            # A half-open link drops the greeting too.
            await pair.open.wait()
            their_reader, their_writer = await asyncio.open_connection(*target)
            ends.add(their_writer.transport)
            pair.transports |= ends
            await asyncio.gather(
                self._pump(reader, their_writer, pair), self._pump(their_reader, writer, pair)
            )
        except OSError:
            pass
        finally:
            for end in ends:
                end.abort()
            pair.transports -= ends

    async def _pump(self, reader, writer, pair):
        while data := await reader.read(CHUNK):
            await pair.open.wait()
            if wait_s := pair.delay_s + pair.byte_s * len(data):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._never.wait(), wait_s)
            if pair.corrupt and len(data) >= 4096:
                pair.corrupt -= 1
                self.corrupted += 1
                middle = len(data) // 2
                data = data[:middle] + bytes([data[middle] ^ 0x40]) + data[middle + 1 :]
            pair.passed += len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    def passed(self, one, other):
        """Return the bytes between the two so far, in both directions."""
        return self._pair(one, other).passed

    def disturb(self, one, other, kind, amount=0):
        """Disturb a pair. `kind`: stall (half-open), refuse (cut, and refuse new connections), cut, delay
        (by seconds), slow (to bytes per second), corrupt, heal."""
        self._call(self._disturb(one, other, kind, amount))

    async def _disturb(self, one, other, kind, amount):
        pair = self._pair(one, other)
        if kind == "stall":
            pair.open.clear()
        elif kind == "refuse":
            pair.refused = True
        elif kind == "delay":
            pair.delay_s = amount
        elif kind == "slow":
            pair.byte_s = 1 / amount
        elif kind == "corrupt":
            pair.corrupt = amount
        elif kind == "heal":
            pair.refused, pair.delay_s, pair.byte_s, pair.corrupt = False, 0, 0, 0
            pair.open.set()
        if kind in ("cut", "refuse"):
            for transport in list(pair.transports):
                transport.abort()

    def close(self):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self):
        for server in self._servers:
            server.close()
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
