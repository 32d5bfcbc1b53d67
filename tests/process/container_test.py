"""A node in a container whose memory limit is smaller than the requested capacity: the node reports
this, keeps to the limit, and is never killed for it. Runs outside Bazel's sandbox, where no control
groups can be made."""

import contextlib
import os
import pathlib
import re
import subprocess
import unittest
import urllib.request

from tests.process.harness import DEADLINE_S, ERROR, ID_A, ID_B, ClusterTest, environment, sha256, tied

MIB = 1 << 20
LIMIT = 256 * MIB
MANY = os.path.abspath("tests/process/many_objects")
# (type in /proc/mounts, an option there), the file of the limit, the file with the count of kills.
VERSIONS = (
    ("cgroup2", "", "memory.max", "memory.events"),
    ("cgroup", "memory", "memory.limit_in_bytes", "memory.oom_control"),
)


class Container:
    """A control group with a memory limit. Processes enter it before they start."""

    def __init__(self, limit):
        self.path, problems = None, []
        for kind, option, limit_file, self.kills_file in VERSIONS:
            for line in pathlib.Path("/proc/mounts").read_text().splitlines():
                _, mount, mounted, options, *_ = line.split()
                if mounted != kind or option not in ("", *options.split(",")):
                    continue
                path = pathlib.Path(mount, f"phalanx-test-{os.getpid()}")
                try:
                    path.mkdir()
                    self.path = path
                    # Opened without creating it: a missing file is not a limit.
                    with open(path / limit_file, "r+", encoding="ascii") as file:
                        file.write(str(limit))
                    return
                except OSError as problem:
                    problems.append(str(problem))
                    self.close()
        raise unittest.SkipTest(f"no control group with a limit can be made here: {problems}")

    def enter(self):
        (self.path / "cgroup.procs").write_text("0")

    def kills(self):
        return int(re.search(r"^oom_kill (\d+)$", (self.path / self.kills_file).read_text(), re.M).group(1))

    def close(self):
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                self.path.rmdir()
        self.path = None


def metric(node, name):
    with urllib.request.urlopen(f"http://{node.hello['metrics']}/metrics", timeout=30) as answer:
        return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M).group(1))


class ContainerTest(ClusterTest):
    def setUp(self):
        container = Container(LIMIT)
        self.addCleanup(container.close)
        # Its processes must end first.
        super().setUp()
        self.container = container
        self.cluster.start_shards(1)

    def start(self, capacity):
        self.node = self.cluster.start_node(
            "n0", ["--metrics-listen=127.0.0.1:0"], capacity=capacity, preexec_fn=self.container.enter
        )

    def tearDown(self):
        self.assertEqual(self.container.kills(), 0)

    def fill(self, path, first=1, most=1000):
        """Put the file repeatedly until a put fails; return the number of puts and the error."""
        for count in range(most):
            put = self.cluster.begin("put", path, f"--id={first + count:040x}", "-q", "--timeout=1s", node="n0")
            error = put.communicate(timeout=DEADLINE_S)[1]
            if put.returncode != 0:
                self.assertEqual(put.returncode, ERROR, error)
                return count, error
        self.fail(f"all {most} found room")

    def test_the_capacity_follows_from_the_containers_limit(self):
        self.start(capacity=None)
        capacity = metric(self.node, "phalanx_node_capacity_bytes")
        self.assertEqual(capacity % MIB, 0)
        self.assertLessEqual(capacity, 0.3 * LIMIT + MIB)
        self.assertGreater(capacity, 0.2 * LIMIT)

    def test_large_objects_beyond_the_limit_are_refused_and_those_within_it_kept(self):
        self.start("1GiB")
        self.assertIn("1024 MiB", self.node.wait_for_log("is more than"))
        path = self.cluster.make_file("file", 12 * MIB)
        count, error = self.fill(path)
        self.assertIn("RESOURCE_EXHAUSTED", error)
        self.assertIn("--capacity", error)
        self.assertGreaterEqual(count, 8)
        self.assertEqual(self.cluster.get("n0", f"{count:040x}"), sha256(path))
        # A delete frees memory.
        self.cluster.run("rm", f"{1:040x}", node="n0")
        self.cluster.put("n0", path, ID_A)

    def test_a_pull_beyond_the_limit_waits_and_ends(self):
        self.start("1GiB")
        self.cluster.start_node("n1", capacity="512MiB")
        self.cluster.wait_for_nodes(2)
        path = self.cluster.make_file("file", LIMIT + 10 * MIB)
        self.cluster.put("n1", path, ID_A, "--wait")
        get = self.cluster.begin("get", ID_A, "-o", self.cluster.path("out"), "-q", "--timeout=2s", node="n0")
        self.assertNotEqual(get.wait(DEADLINE_S), 0)
        small = self.cluster.make_file("small", 2 * MIB)
        self.cluster.put("n1", small, ID_B)
        self.assertEqual(self.cluster.get("n0", ID_B), sha256(small))

    def test_many_writers_at_once_do_not_pass_the_limit(self):
        self.start("1GiB")
        path = self.cluster.make_file("file", 20 * MIB)
        puts = [
            self.cluster.begin("put", path, f"--id={index + 1:040x}", "-q", "--timeout=1s", node="n0")
            for index in range(16)
        ]
        codes = []
        for put in puts:
            put.communicate(timeout=DEADLINE_S)
            codes.append(put.returncode)
        self.assertEqual(set(codes), {0, ERROR})

    def test_small_objects_without_end_are_refused_before_their_records_fill_the_container(self):
        for already in (0, 100):
            with self.subTest(already):
                self.start("1GiB")
                for index in range(already // 20):
                    path = self.cluster.make_file("file", 20 * MIB)
                    self.cluster.put("n0", path, f"{index + 1:040x}")
                put = subprocess.run(
                    tied(MANY, self.node.client_address, "put", "1000000", "100"), env=environment(),
                    capture_output=True, text=True, timeout=4 * DEADLINE_S, check=False,
                )
                self.assertEqual(put.returncode, 1, put.stderr)
                self.assertIn("RESOURCE_EXHAUSTED", put.stderr)
                self.assertIsNone(self.node.process.poll())
                self.node.close()


if __name__ == "__main__":
    unittest.main()
