"""Emulated hosts on one Linux machine: network namespaces on a bridge, each link shaped both ways. Needs root.

    with EmulatedHosts(8, "1gbit") as hosts:
        hosts.popen(0, ["iperf3", "-s"])          # on the first host
        hosts.address(0)                          # "10.77.0.1"

With zones, the hosts form groups of neighbours. Each group has its own bridge and reaches the other groups through one link, shaped
both ways, and with `far` also delayed and lossy: benchmarks/link_delay.cc holds its frames back. Everything is removed at the end, also after an error. Names contain the process id, so that several runs do not collide.
"""

import dataclasses
import os
import pathlib
import subprocess

LINK_DELAY = pathlib.Path(__file__).resolve().parent.parent / "bazel-bin/benchmarks/link_delay"


@dataclasses.dataclass
class Far:
    """The way between two zones: its round trip in seconds, and the part of the packets that is lost in each direction."""

    round_trip_s: float
    loss: float = 0.0


class EmulatedHosts:
    """`count` hosts 10.77.0.1 ...; `rate` in tc's form ("1gbit"), or None for unshaped links.

    Links of `zone_rate` join `zones` groups of neighbouring hosts, `far` from each other. `rates` maps a host to the rate of its own
    link.
    """

    # A smaller burst loses rate; a larger one lets a 1 MiB message through unshaped.
    BURST = "128kb"
    LATENCY = "100ms"
    # Of all links if some are far: link_delay needs about 8 us for a frame, 1500 bytes would take a core at 1 Gbit/s.
    FAR_MTU = "9000"
    FAR_BUFFER = "4096 131072 67108864"

    def __init__(self, count, rate=None, zones=1, zone_rate=None, rates=None, far=None):
        self.count = count
        self.rate = rate
        self.rates = rates or {}
        self.zones = zones
        self.zone_rate = zone_rate
        self.far = far
        self._tag = f"px{os.getpid() % 100000}"
        self._namespaces = []
        self._links = []
        self._delays = []

    def __enter__(self):
        try:
            self._make()
        except BaseException:  # also Ctrl-C and a signal's SystemExit
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for delay in self._delays:
            delay.terminate()
        for delay in self._delays:
            print("link delay:", delay.communicate()[0].strip())
        self._delays = []
        # A link is removed at once; a namespace stays in the kernel until its last closing connection has ended.
        for link in reversed(self._links):
            subprocess.run(["ip", "link", "del", link], check=False, stderr=subprocess.DEVNULL)
        self._links = []
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False, stderr=subprocess.DEVNULL)
        self._namespaces = []

    def address(self, host):
        return f"10.77.{host // 250}.{host % 250 + 1}"

    def command_at(self, host, command):
        """Returns the command line that runs `command` on a host, in the same process."""
        return self._inside(host) + command

    def popen(self, host, command, **keywords):
        """Starts `command` on a host; the process id is that of the command."""
        return subprocess.Popen(self.command_at(host, command), **keywords)

    def zone(self, host):
        """The group of a host: 0 for the first ones."""
        return host * self.zones // self.count

    def rate_of(self, host):
        return self.rates.get(host, self.rate)

    def bytes_received(self, host):
        """The bytes that the host's link has carried to it, with headers."""
        with open(f"/sys/class/net/{self._outer(host)}/statistics/tx_bytes") as counter:
            return int(counter.read())

    def set_rate(self, host, rate):
        """Changes the rate of a host's link, both ways. REQUIRES: it is shaped."""
        shape = ["tbf", "rate", rate, "burst", self.BURST, "latency", self.LATENCY]
        _run("tc", "qdisc", "change", "dev", self._outer(host), "root", *shape)
        _run(*self._inside(host), "tc", "qdisc", "change", "dev", "eth0", "root", "handle", "1:", *shape)

    def _outer(self, host):
        return f"{self._tag}v{host}"

    def _inside(self, host):
        return ["ip", "netns", "exec", self._namespaces[host]]

    def _add_link(self, name, *what):
        self._links.append(name)
        _run("ip", "link", "add", name, *self._mtu(), *what)

    def _mtu(self):
        return ["mtu", self.FAR_MTU] if self.far else []

    def _shape(self, rate):
        return ["root", "tbf", "rate", rate, "burst", self.BURST, "latency", self.LATENCY]

    def _make(self):
        core = f"{self._tag}b"
        self._add_link(core, "type", "bridge")
        _run("ip", "link", "set", core, "up")
        bridges = [core]
        if self.zones > 1:
            bridges = [self._make_zone(core, zone) for zone in range(self.zones)]
        for host in range(self.count):
            self._make_host(host, bridges[self.zone(host)])

    def _make_zone(self, core, zone):
        bridge, inner, outer = (f"{self._tag}{letter}{zone}" for letter in "zio")
        self._add_link(bridge, "type", "bridge")
        if self.far:
            for link in (inner, outer):
                self._links.append(link)
                _run("ip", "tuntap", "add", link, "mode", "tap")
                _run("ip", "link", "set", link, *self._mtu())
        else:
            self._add_link(outer, "type", "veth", "peer", "name", inner, *self._mtu())
        for link, master in ((inner, bridge), (outer, core)):
            _run("ip", "link", "set", link, "master", master)
            _run("ip", "link", "set", link, "up")
            if self.zone_rate:
                _run("tc", "qdisc", "add", "dev", link, *self._shape(self.zone_rate))
        _run("ip", "link", "set", bridge, "up")
        if self.far:
            self._delays.append(self._start_delay(inner, outer))
        return bridge

    def _start_delay(self, inner, outer):
        """Starts the process that joins the two ends of a zone's link. A packet crosses two links, a round trip four."""
        one_way_us = round(self.far.round_trip_s / 4 * 1e6)
        command = [LINK_DELAY, inner, outer, str(one_way_us), f"{self.far.loss / 2:.6f}"]
        delay = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        # It prints this when it carries frames, and ends at once if it cannot.
        if delay.stdout.readline() != "READY\n":
            raise RuntimeError(f"{LINK_DELAY} ended: {delay.wait()}")
        return delay

    def _make_host(self, host, bridge):
        namespace, outer = f"{self._tag}n{host}", self._outer(host)
        self._namespaces.append(namespace)
        _run("ip", "netns", "add", namespace)
        self._add_link(outer, "type", "veth", "peer", "name", "eth0", *self._mtu(), "netns", namespace)
        _run("ip", "link", "set", outer, "master", bridge)
        _run("ip", "link", "set", outer, "up")
        _run("ip", "-n", namespace, "addr", "add", self.address(host) + "/16", "dev", "eth0")
        _run("ip", "-n", namespace, "link", "set", "eth0", "up")
        _run("ip", "-n", namespace, "link", "set", "lo", "up")
        if self.far:
            # As docs/operations.md recommends: a connection sends no more than its buffer in a round trip.
            for name in ("tcp_rmem", "tcp_wmem"):
                _run(*self._inside(host), "sysctl", "-qw", f"net.ipv4.{name}={self.FAR_BUFFER}")
            _run(*self._inside(host), "sysctl", "-qw", "net.ipv4.tcp_congestion_control=bbr")
        rate = self.rate_of(host)
        if rate:
            _run("tc", "qdisc", "add", "dev", outer, *self._shape(rate))
            inside = [*self._inside(host), "tc", "qdisc", "add", "dev", "eth0"]
            _run(*inside, "handle", "1:", *self._shape(rate))
            # The default of a real interface: three bands, by the priority of the socket.
            _run(*inside, "parent", "1:", "pfifo_fast")


def _run(*command):
    subprocess.run(command, check=True)


class Loopback:
    """The same interface over plain loopback: no root, no shaping."""

    rate = None
    rates = {}
    zones = 1

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def address(self, _):
        return "127.0.0.1"

    def command_at(self, _, command):
        return command

    def popen(self, _, command, **keywords):
        return subprocess.Popen(command, **keywords)
