"""Sessions whose ranks are processes: they are killed in calls, checkpoints and loads, and with their nodes."""

import collections
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import unittest

from tests.process.harness import BINARY, DEADLINE_S, OK, ClusterTest, environment, tied

RANK = os.path.abspath("tests/process/spmd_rank")
NODES = 3
WORLD = 6
EACH = WORLD // NODES
ITERATIONS = 4
# So many last for seconds after a kill.
MANY = 600
# With a disk.
FEWER = 200
COUNT = 20_000
LINE = re.compile(r"\[worker(\d+)\] (start|load|prepare|saved|end) (.*)$")
# Calls of the group: the one of Join, the two of the first Broadcast, and those of an iteration.
BOOT = 3
ALLREDUCE, BROADCAST, SENT, SIZES, GATHER, BARRIER = range(1, 7)
# Those of an AllreduceBy, in an iteration with folds.
FOLD_CALLS = 3


def call(iteration, which):
    """The number of a call of the group in a first life."""
    return BOOT + iteration * BARRIER + which


class SpmdTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards()
        self.cluster.start_hosts("abc")

    def begin(
        self, job, *deaths, fail=(), restarts=20, iterations=ITERATIONS, kind="eager", peer_timeout="60s", disk=None
    ):
        """A launch on each node, with two ranks each."""
        launches = []
        for node in range(NODES):
            command = [BINARY, "launch", f"-n{EACH}", f"--world={WORLD}", f"--first={node * EACH}", f"--job={job}"]
            command += [f"--address={self.cluster.nodes[f'n{node}'].client_address}", f"--restarts={restarts}"]
            command += [f"--fail={each}" for each in fail if int(each.split("@")[0]) // EACH == node]
            launch = subprocess.Popen(
                tied(*command, "--", RANK, str(iterations), str(COUNT), kind, *deaths),
                env={
                    **environment(),
                    "SPMD_PEER_TIMEOUT": peer_timeout,
                    **({"PHALANX_CHECKPOINT_DIR": disk} if disk else {}),
                },
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            self.addCleanup(self.cluster.discard, launch)
            launches.append(launch)
        self.lines = collections.defaultdict(list)  # by rank, of all its lives
        self.killed = collections.Counter()  # by rank
        self.printed = []  # at the launches
        return launches

    def take(self, line):
        if match := LINE.match(line.rstrip("\n")):
            self.lines[int(match[1])].append((match[2], match[3]))
        elif line.startswith("rank "):
            self.printed.append(line)

    @contextlib.contextmanager
    def watched(self, launch):
        """Kill a launch that hangs, which ends its output."""
        watchdog = threading.Timer(DEADLINE_S, launch.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def until(self, launch, rank, version):
        """Read the output of a launch until a rank has this version in the life after its last kill; return its process."""
        with self.watched(launch):
            while True:
                lines = self.lines[rank]
                starts = [at for at, (word, _) in enumerate(lines) if word == "start"]
                now = lines[starts[-1] :] if len(starts) > self.killed[rank] else []
                if any(word in ("load", "saved") and int(text) >= version for word, text in now):
                    return int(now[0][1].split()[0])
                line = launch.stdout.readline()
                self.assertNotEqual(line, "", "the launch has ended")
                self.take(line)

    def result(self, launches):
        """Return the hash that all ranks have at the end."""
        for launch in launches:
            with self.watched(launch):
                out = launch.stdout.read()
                status = launch.wait()
            self.assertEqual(status, OK, out)
            for line in out.splitlines():
                self.take(line)
        ends = {rank: [text.split()[0] for word, text in lines if word == "end"] for rank, lines in self.lines.items()}
        self.assertEqual(sorted(ends), list(range(WORLD)))
        (result,) = set(sum(ends.values(), []))
        return result

    def of(self, rank, wanted):
        return [text for word, text in self.lines[rank] if word == wanted]

    def lives(self, rank):
        return [int(text.split()[1]) for text in self.of(rank, "start")]

    def calm(self, kind="eager"):
        result = self.result(self.begin(f"calm_{kind}", kind=kind))
        for rank in range(WORLD):
            self.assertEqual(self.lives(rank), [0])
            self.assertEqual(self.of(rank, "prepare"), [str(i) for i in range(ITERATIONS)])
        return result

    def test_a_rank_killed_in_any_call_has_the_bits_of_a_run_without_kills(self):
        calm = self.calm()
        numbers = [1, 2, 3] + [call(iteration, which) for iteration in (0, 2) for which in range(ALLREDUCE, BARRIER + 1)]
        # Leave.
        numbers.append(call(ITERATIONS, ALLREDUCE))
        for number in numbers:
            with self.subTest(call=number):
                self.assertEqual(self.result(self.begin(f"call{number}", fail=[f"3@{number}"])), calm)
                # The first life is killed before it prints its start if that is in Join.
                self.assertEqual(self.lives(3), [1] if number == 1 else [0, 1])
                # Only an input that the others still wait for is given again.
                again = str((number - BOOT) // BARRIER) if (number - BOOT) % BARRIER == ALLREDUCE else None
                prepared = collections.Counter(self.of(3, "prepare"))
                self.assertEqual(prepared, {str(i): 2 if str(i) == again else 1 for i in range(ITERATIONS)})
                self.assertEqual({text for rank in (0, 1, 2, 4, 5) for text in self.of(rank, "load")}, {"0"})

    def test_the_root_of_a_broadcast_is_killed_in_it(self):
        calm = self.calm()
        for which in (BROADCAST, SENT):
            # The roots take turns: rank 2 in the third iteration.
            self.assertEqual(self.result(self.begin(f"root{which}", fail=[f"2@{call(2, which)}"])), calm)
            self.assertEqual(self.of(2, "load"), ["0", "2"])

    def test_ranks_are_killed_in_checkpoints_and_loads(self):
        calm = self.calm()
        for i, (deaths, loads) in enumerate((
            (["save@2:4:0"], ["0", "2"]),
            # The calls of version 2 have ended, those of version 3 have not begun; so below.
            (["saved@3:4:0"], ["0", "2"]),
            (["prepare@2:4:0", "load@0:4:1"], ["0", "1"]),
            (["prepare@2:4:0", "loaded@1:4:1", "save@2:4:2"], ["0", "1", "2"]),
            # Both ranks of a node, and one of another node twice.
            (["save@1:4:0", "prepare@1:5:0", "saved@2:0:0", "load@0:0:1"], ["0", "1"]),
        )):
            with self.subTest(deaths=deaths):
                self.assertEqual(self.result(self.begin(f"deaths{i}", *deaths)), calm)
                self.assertEqual(self.of(4, "load"), loads)
                for rank in range(WORLD):
                    self.assertEqual(self.lives(rank)[-1], sum(f":{rank}:" in each for each in deaths))

    def test_one_rank_is_killed_often(self):
        calm = self.calm()
        # The calls that a life makes are counted anew; those that it repeats are not made.
        self.assertEqual(self.result(self.begin("often", fail=["1@4", "1@3", "1@1", "1@9"])), calm)
        self.assertEqual(self.lives(1)[-1], 4)

    def test_ranks_are_killed_among_lazy_checkpoints(self):
        calm = self.calm()
        # In each call of a version.
        for which in range(ALLREDUCE, BARRIER + 1):
            with self.subTest(which=which):
                self.assertEqual(self.result(self.begin(f"lazy{which}", fail=[f"3@{call(2, which)}"], kind="lazy")), calm)
                # Until the first call of a version has ended, the one before it will do.
                self.assertIn(self.of(3, "load"), [["0", "2"]] + [["0", "1"]] * (which == ALLREDUCE))
        # One that saves for another; most of them; the next life, too.
        for i, deaths in enumerate((
            ["prepare@2:4:0", "save@2:1:0", "save@2:2:0"],
            # A node without a rank keeps no results, which are on two hosts.
            [f"prepare@2:{rank}:0" for rank in (1, 2, 3, 5)],
            ["prepare@2:0:0", "load@0:0:1", "prepare@2:0:2", "prepare@2:1:0", "loaded@1:1:1", "loaded@2:1:1"],
        )):
            with self.subTest(deaths=deaths):
                self.assertEqual(self.result(self.begin(f"deaths{i}", *deaths, kind="lazy")), calm)
                ended = {each.split(":", 1)[1] for each in deaths}  # rank and life
                for rank in range(WORLD):
                    self.assertEqual(self.lives(rank)[-1], sum(each.startswith(f"{rank}:") for each in ended))

    def test_ranks_with_local_models_are_killed(self):
        calm = self.calm("local")
        self.assertNotEqual(calm, self.calm())
        for which in range(ALLREDUCE, BARRIER + 1):
            with self.subTest(which=which):
                self.assertEqual(self.result(self.begin(f"local{which}", fail=[f"3@{call(2, which)}"], kind="local")), calm)
                self.assertEqual(self.of(3, "load"), ["0", "1" if which == ALLREDUCE else "2"])
        deaths = ["save@2:4:0", "saved@3:2:0", "prepare@2:0:0", "load@0:0:1", "prepare@2:0:2", "loaded@2:4:1"]
        self.assertEqual(self.result(self.begin("deaths", *deaths, kind="local")), calm)
        for rank in range(WORLD):
            self.assertEqual(self.lives(rank)[-1], sum(f":{rank}:" in each for each in deaths))

    def test_ranks_are_killed_in_folds_along_a_tree(self):
        calm = self.calm("fold")
        self.assertEqual(sorted(self.printed), [f"rank {rank} has {calm}" for rank in range(WORLD)])
        # Its sizes, the outcome and the result, of the third iteration.
        for which in range(1, FOLD_CALLS + 1):
            number = BOOT + 3 * BARRIER + 2 * FOLD_CALLS + which
            with self.subTest(call=number):
                self.assertEqual(self.result(self.begin(f"fold{number}", fail=[f"3@{number}"], kind="fold")), calm)
                self.assertEqual(self.lives(3), [0, 1])
        # A leaf, a rank with a child, rank 0, twice; and a parent and its child.
        for i, deaths in enumerate((
            ["input@2:5:0"], ["fold@2:2:0"], ["fold@1:0:0", "fold@1:0:1"], ["fold@2:4:0", "input@2:5:0", "fold@2:4:1"],
        )):
            with self.subTest(deaths=deaths):
                self.assertEqual(self.result(self.begin(f"folds{i}", *deaths, kind="fold")), calm)
                for rank in range(WORLD):
                    self.assertEqual(self.lives(rank)[-1], sum(f":{rank}:" in each for each in deaths))

    def test_a_job_whose_ranks_are_all_killed_goes_on_from_its_disk(self):
        for kind in ("eager", "lazy", "local"):
            with self.subTest(kind=kind), tempfile.TemporaryDirectory() as disk:
                calm = self.result(self.begin(f"calm_{kind}", iterations=FEWER, kind=kind))
                launches = self.begin(f"all_{kind}", iterations=FEWER, kind=kind, disk=disk)
                self.until(launches[0], 0, 20)
                for launch in launches:
                    launch.kill()
                for launch in launches:
                    with self.watched(launch):
                        # Its end is that of the ranks, which have it, too.
                        for line in launch.stdout:
                            self.take(line)
                        launch.wait()
                written = max(int(self.of(rank, "saved")[-1]) for rank in range(WORLD))
                self.assertEqual(self.result(self.begin(f"all_{kind}", iterations=FEWER, kind=kind, disk=disk)), calm)
                for rank in range(WORLD):
                    (loaded,) = self.of(rank, "load")
                    self.assertGreaterEqual(int(loaded), written - 1)
                # A mark stays, since the run has gone on from files.
                (mark,) = os.listdir(disk)
                self.assertRegex(mark, r"^all_.*_ended\.checkpoint$")

    def test_a_node_ends_with_its_ranks(self):
        for kind in ("eager", "lazy", "local"):
            with self.subTest(kind=kind):
                calm = self.result(self.begin(f"calm_{kind}", iterations=MANY, kind=kind))
                # A rank that finds no node ends at once.
                launches = self.begin(f"node_{kind}", iterations=MANY, restarts=1000, kind=kind)
                self.until(launches[0], 0, 20)
                # The process id is that of the command in docs/jobs.md.
                (node,) = (each for each in self.cluster.ask("status")["nodes"] if each["name"] == "n2")
                os.kill(node["process_id"], signal.SIGKILL)
                self.cluster.nodes["n2"].wait()
                self.cluster.start_node("n2", ["--label=host=c"])
                self.assertEqual(self.result(launches), calm)
                for rank in (4, 5):
                    # Its own checkpoint has ended with the node; that before it has copies of the local model.
                    self.assertGreaterEqual(int(self.of(rank, "load")[-1]), 18)

    def test_ranks_are_killed_at_any_moment(self):
        calm = self.result(self.begin("calm", iterations=MANY))
        launches = self.begin("moments", iterations=MANY)
        for step, rank in enumerate((0, 1, 1, 0, 1)):
            os.kill(self.until(launches[0], rank, 20 * (step + 1)), signal.SIGKILL)
            self.killed[rank] += 1
        self.assertEqual(self.result(launches), calm)
        self.assertEqual((self.lives(0)[-1], self.lives(1)[-1]), (2, 3))

    def test_the_directory_restarts(self):
        calm = self.result(self.begin("calm", iterations=MANY))
        launches = self.begin("directory", iterations=MANY)
        self.until(launches[0], 0, 20)
        self.cluster.shards[0].kill()
        # Calls and checkpoints need no directory.
        self.until(launches[0], 0, 60)
        # A next life does.
        os.kill(self.until(launches[0], 1, 60), signal.SIGKILL)
        self.killed[1] += 1
        self.cluster.restart_shard(0)
        self.until(launches[0], 1, 80)
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0)
        self.assertEqual(self.result(launches), calm)
        self.assertEqual(self.lives(1), [0, 1])
        self.assertGreaterEqual(int(self.of(1, "load")[-1]), 59)

    def test_a_directory_that_stays_away_is_named_by_all_ranks(self):
        launches = self.begin("away", iterations=1_000_000, restarts=2, peer_timeout="5s")
        self.until(launches[0], 0, 20)
        self.cluster.shards[0].kill()
        os.kill(self.until(launches[0], 1, 40), signal.SIGKILL)
        for node, launch in enumerate(launches):
            with self.watched(launch):
                out = launch.stdout.read()
                self.assertNotEqual(launch.wait(), OK)
            # The waits of the living ranks, and the next life of the one that was killed.
            for rank in range(node * EACH, node * EACH + EACH):
                self.assertRegex(out, rf"\[worker{rank}\] ERROR DEADLINE_EXCEEDED: .*shard 0 of the directory")
        # All members have ended by then: the job begins anew.
        self.cluster.restart_shard(0)
        self.result(self.begin("away"))

    def test_all_ranks_but_one_are_killed_and_nothing_is_left(self):
        calm = self.calm()
        # The links between the nodes stay.
        descriptors = {name: self.descriptors(node) for name, node in self.cluster.nodes.items()}
        deaths = [f"{point}@2:{rank}:0" for rank, point in enumerate(("prepare", "save", "saved", "prepare", "save"))]
        self.assertEqual(self.result(self.begin("one", *deaths)), calm)
        for rank in range(WORLD - 1):
            self.assertEqual(self.lives(rank), [0, 1])
        self.assertEqual(self.lives(WORLD - 1), [0])
        left = self.cluster.run("ls", "--json", node="n0").strip()
        self.assertEqual(left, "")
        self.assertEqual({name: self.descriptors(node) for name, node in self.cluster.nodes.items()}, descriptors)

    def descriptors(self, node):
        return len(os.listdir(f"/proc/{node.pid}/fd"))

    def test_checkpoints_that_are_freed_leave_no_tombstones(self):
        self.result(self.begin("long", iterations=20))
        (shard,) = self.cluster.ask("status")["shards"]
        # Each rank deletes its last ones when it leaves.
        self.assertLessEqual(shard["tombstones"], 3 * WORLD)


if __name__ == "__main__":
    unittest.main()
