"""Emulated hosts on one Linux machine: network namespaces on a bridge, each link shaped both ways. Needs root.

    with EmulatedHosts(8, "1gbit") as hosts:
        hosts.popen(0, ["iperf3", "-s"])          # on the first host
        hosts.address(0)                          # "10.77.0.1"

Everything is removed at the end, however it ends. Names carry the process id, so that several runs do not meet.
"""

import os
import subprocess


class EmulatedHosts:
    """`count` hosts 10.77.0.1 ... on one bridge; `rate` as tc writes it ("1gbit"), or None for links not shaped."""

    # A smaller burst loses rate; a larger one lets a 1 MiB message through unshaped.
    BURST = "128kb"
    LATENCY = "100ms"

    def __init__(self, count, rate=None):
        self.count = count
        self.rate = rate
        self._tag = f"px{os.getpid() % 100000}"
        self._namespaces = []

    def __enter__(self):
        try:
            self._make()
        except BaseException:  # Ctrl-C and a signal's SystemExit too
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        # A link goes at once; a namespace lives on in the kernel until its last closing connection is gone.
        for link in [f"{self._tag}v{host}" for host in range(len(self._namespaces))] + [self._bridge()]:
            subprocess.run(["ip", "link", "del", link], check=False, stderr=subprocess.DEVNULL)
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False, stderr=subprocess.DEVNULL)
        self._namespaces = []

    def address(self, host):
        return f"10.77.{host // 250}.{host % 250 + 1}"

    def popen(self, host, command, **keywords):
        """Starts `command` on a host; the process id is the command's own."""
        return subprocess.Popen(["ip", "netns", "exec", self._namespaces[host]] + command, **keywords)

    def _bridge(self):
        return f"{self._tag}b"

    def _make(self):
        ip = ["ip"]
        run = lambda command: subprocess.run(command, check=True)
        run(ip + ["link", "add", self._bridge(), "type", "bridge"])
        run(ip + ["link", "set", self._bridge(), "up"])
        for host in range(self.count):
            namespace, outer = f"{self._tag}n{host}", f"{self._tag}v{host}"
            self._namespaces.append(namespace)
            run(ip + ["netns", "add", namespace])
            run(ip + ["link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace])
            run(ip + ["link", "set", outer, "master", self._bridge()])
            run(ip + ["link", "set", outer, "up"])
            run(ip + ["-n", namespace, "addr", "add", self.address(host) + "/16", "dev", "eth0"])
            run(ip + ["-n", namespace, "link", "set", "eth0", "up"])
            run(ip + ["-n", namespace, "link", "set", "lo", "up"])
            if self.rate:
                shape = ["root", "tbf", "rate", self.rate, "burst", self.BURST, "latency", self.LATENCY]
                run(["tc", "qdisc", "add", "dev", outer] + shape)
                run(["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", "eth0"] + shape)


class Loopback:
    """The same interface over plain loopback: no root, no shaping."""

    rate = None

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def address(self, _):
        return "127.0.0.1"

    def popen(self, _, command, **keywords):
        return subprocess.Popen(command, **keywords)
