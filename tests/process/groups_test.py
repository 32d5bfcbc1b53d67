"""Calls of a group whose members are processes: tasks are killed as they make a call, nodes at any moment."""

import collections
import os
import pathlib
import re
import signal
import subprocess
import unittest
import urllib.request

from tests.process.harness import BINARY, DEADLINE_S, ID_A, OK, TIMED_OUT, ClusterTest, environment, tied

MEMBER = os.path.abspath("tests/process/group_member")
NODES = 3
TASKS = 6
EACH = TASKS // NODES
CALLS = 12
MANY = 400
ALL = 2**TASKS - 1
FAILED = 2  # of a member whose call fails
LINE = re.compile(r"\[worker(\d+)\] (\d+) (\d+)$")
KEPT = re.compile(r"\[worker(\d+)\] kept (\d+) (\d+)$")


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class GroupsTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards()
        self.cluster.start_hosts("abc", ["--metrics-listen=127.0.0.1:0"])

    def begin(
        self, job, first, tasks, node, on_loss, size, *flags, calls=CALLS, seconds=DEADLINE_S / 2, retain=0, gate=None
    ):
        command = [BINARY, "launch", f"-n{tasks}", f"--world={TASKS}", f"--first={first}", f"--job={job}"]
        command += [f"--address={self.cluster.nodes[node].client_address}", *flags]
        command += ["--", MEMBER, str(calls), str(size), on_loss, str(seconds), str(retain), *filter(None, [gate])]
        launch = subprocess.Popen(
            tied(*command), env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(self.cluster.discard, launch)
        return launch

    def begin_job(self, job, on_loss, size, *flags, **settings):
        return [
            self.begin(job, node * EACH, EACH, f"n{node}", on_loss, size, *flags, **settings) for node in range(NODES)
        ]

    def begin_task(self, job, rank, size, **settings):
        return self.begin(job, rank, 1, f"n{rank // EACH}", "fail", size, **settings)

    def begin_tasks(self, job, size, **settings):
        """A launch for each task: the first one that fails does not end another one before that prints its error."""
        return [self.begin_task(job, rank, size, **settings) for rank in range(TASKS)]

    def results(self, launches, calls=CALLS):
        """Return the sets of members of each call, by number."""
        sets, last = collections.defaultdict(set), {}
        self.kept = collections.defaultdict(dict)
        for launch in launches:
            out, err = launch.communicate(timeout=DEADLINE_S)
            self.assertEqual(launch.returncode, OK, (out, err))
            self.assertNotIn("WRONG", out)
            for line in filter(None, map(LINE.match, out.splitlines())):
                task, number, members = map(int, line.groups())
                sets[number].add(members)
                last[task] = number
            for task, number, members in (map(int, line.groups()) for line in filter(None, map(KEPT.match, out.splitlines()))):
                self.kept[task][number] = members
        self.assertEqual(sorted(last), list(range(TASKS)))
        self.assertTrue(all(number >= calls for number in last.values()), last)
        self.assertEqual(len(set(last.values())), 1, last)
        # Never a mix of two lists of members.
        self.assertEqual([number for number in sets if len(sets[number]) != 1], [], sets)
        # What a next life has been given is what the others had.
        for results in self.kept.values():
            self.assertEqual({number: {members} for number, members in results.items()}, {n: sets[n] for n in results})
        return sets

    def until_call(self, launch, number):
        """Wait until a task of the launch has the result of this call."""
        while True:
            line = launch.stdout.readline()
            self.assertNotEqual(line, "", "the launch has ended")
            if (match := LINE.match(line.rstrip())) and int(match[2]) >= number:
                return

    def assert_errors(self, launches, error):
        """All tasks of these launches end with this error."""
        for launch in launches:
            out, err = launch.communicate(timeout=DEADLINE_S)
            self.assertEqual(launch.returncode, FAILED, (out, err))
            self.assertNotIn("WRONG", out)
            self.assertRegex(out.splitlines()[-1], r"^\[worker\d+\] ERROR " + error)

    def test_all_members_have_all_results(self):
        sets = self.results(self.begin_job("calm", "fail", 1 << 20))
        self.assertEqual(set.union(*sets.values()), {ALL})

    def metrics(self, node):
        with urllib.request.urlopen(f"http://{self.cluster.nodes[node].hello['metrics']}/metrics", timeout=DEADLINE_S) as answer:
            found = re.findall(r"^phalanx_node_(\w+) ([0-9.e+]+)$", answer.read().decode(), re.M)
        return {key: float(value) for key, value in found}

    def test_the_metrics_count_calls_members_and_links(self):
        self.results(self.begin_job("counted", "fail", 1 << 20))
        for node in self.cluster.nodes:
            now = self.metrics(node)
            self.assertEqual((now["group_calls"], now["group_calls_failed_total"]), (0, 0))
            self.assertEqual(now["group_calls_ended_total"], CALLS * TASKS // NODES)
            self.assertEqual((now["members"], now["joins_waiting"], now["links_lost_total"]), (0, 0, 0))
            self.assertEqual(now["links"], NODES - 1)
            self.assertGreaterEqual(now["link_messages_sent_total"], CALLS)
            self.assertGreaterEqual(now["link_connects_total"], 1)

    def test_a_member_killed_as_it_makes_a_call_makes_it_in_its_next_life(self):
        for call, size in ((1, 8), (2, 4096), (CALLS // 2, 1 << 20), (CALLS, 8)):
            with self.subTest(call=call):
                job = self.begin_job(f"wait{call}", "wait", size, "--restarts=1", f"--fail=3@{call}")
                sets = self.results(job)
                self.assertEqual(set.union(*sets.values()), {ALL})

    def test_others_go_on_while_a_killed_member_is_away(self):
        victim = 1 << 3
        for call, size in ((2, 8), (CALLS // 2, 1 << 20)):
            with self.subTest(call=call):
                job = self.begin_job(f"exclude{call}", "exclude", size, "--restarts=1", f"--fail=3@{call}")
                sets = self.results(job)
                # If its next life is early, no call lacks it.
                self.assertEqual({members | victim for (members,) in sets.values()}, {ALL})
                self.assertEqual(sets[max(sets)], {ALL})

    def test_a_next_life_is_given_the_results_that_it_has_missed(self):
        for on_loss in ("wait", "exclude"):
            for size in (8, 1 << 20):
                with self.subTest(on_loss=on_loss, size=size):
                    flags = ("--restarts=1", f"--fail=3@{CALLS // 2}")
                    sets = self.results(self.begin_job(f"kept-{on_loss}-{size}", on_loss, size, *flags, retain=CALLS))
                    self.assertEqual(list(self.kept), [3])
                    numbers = sorted(self.kept[3])
                    if on_loss == "wait":
                        # Its life before has made all of them.
                        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
                        self.assertIn(len(numbers), (CALLS // 2 - 1, CALLS // 2))
                    # The others go on while it asks, so it can be given more than are kept at a time. It makes the next one.
                    self.assertTrue(min(sets[numbers[-1] + 1]) & 1 << 3, (numbers, sets))

    def test_results_outlive_a_node_with_two_members(self):
        job = self.begin_job("kept-node", "wait", 1 << 16, "--restarts=20", calls=MANY, retain=MANY)
        self.until_call(job[0], MANY // 4)
        self.cluster.nodes["n2"].kill()
        self.cluster.start_node("n2", ["--label=host=c"])
        self.results(job, calls=MANY)
        # Each result has a copy on another host, also those of which the node had one.
        for task in (4, 5):
            numbers = sorted(self.kept[task])
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
            self.assertGreaterEqual(len(numbers), MANY // 4)

    def test_two_deaths_of_one_task_and_one_of_another(self):
        flags = ("--restarts=2", "--fail=3@4", "--fail=3@2", "--fail=0@7")
        sets = self.results(self.begin_job("often", "wait", 1 << 16, *flags))
        self.assertEqual(set.union(*sets.values()), {ALL})

    def test_a_node_is_killed_among_calls(self):
        for on_loss in ("wait", "exclude"):
            with self.subTest(on_loss=on_loss):
                job = self.begin_job(f"node-{on_loss}", on_loss, 1 << 16, "--restarts=20", calls=MANY)
                self.until_call(job[0], MANY // 4)
                self.cluster.nodes["n2"].kill()
                self.cluster.start_node("n2")
                self.results(job, calls=MANY)

    def test_a_node_is_stopped_among_calls_until_it_counts_as_dead(self):
        for on_loss in ("wait", "exclude"):
            with self.subTest(on_loss=on_loss):
                job = self.begin_job(f"stop-{on_loss}", on_loss, 1 << 16, "--restarts=20", calls=MANY)
                self.until_call(job[0], MANY // 4)
                with self.stopped(self.cluster.nodes["n2"]):
                    self.cluster.wait_for_nodes(NODES - 1)
                self.results(job, calls=MANY)

    def test_a_node_without_room_fails_the_call_on_all_members(self):
        self.cluster.put("n2", self.cluster.make_file("most", 60 << 20), ID_A)
        # The node waits for room until the deadline of its members. The deadline of the others is later.
        seconds = [DEADLINE_S / 2] * (TASKS - EACH) + [3] * EACH
        gate = self.cluster.path("gate")
        os.mkfifo(gate)
        tasks = [self.begin_task("full", rank, 8 << 20, seconds=seconds[rank], gate=gate) for rank in range(TASKS)]
        # No rank ends before all have their error: others could hear of its end before they hear why the call has failed.
        for task in tasks:
            self.assertRegex(task.stdout.readline(), r"\] ERROR RESOURCE_EXHAUSTED: .*on node n2: no memory became free")
        with open(os.open(gate, os.O_RDWR), "rb", buffering=0):
            for task in tasks:
                task.communicate(timeout=DEADLINE_S)
                self.assertEqual(task.returncode, FAILED)

    def test_a_launch_that_is_killed_ends_the_calls_of_the_others(self):
        tasks = self.begin_tasks("launch", 1 << 16, calls=1000 * MANY)
        self.until_call(tasks[0], MANY // 4)
        tasks[5].kill()
        self.assert_errors(tasks[:5], r"UNAVAILABLE: .*call \d+ of launch/worker.*worker5")

    def test_a_member_that_stops_calling_is_named_on_all_members_at_the_deadline(self):
        tasks = self.begin_tasks("stopped", 8, calls=1000 * MANY, seconds=2)
        self.until_call(tasks[0], MANY // 4)
        (member,) = children_of(tasks[3].pid)
        os.kill(member, signal.SIGSTOP)
        error = r"DEADLINE_EXCEEDED: .*call \d+ of stopped/worker.*waiting for rank 3 \(worker3\)"
        self.assert_errors(tasks[:3] + tasks[4:], error)
        os.kill(member, signal.SIGCONT)
        self.assert_errors([tasks[3]], error)

    def test_calls_go_on_while_the_directory_is_away(self):
        gate = self.cluster.path("gate")
        os.mkfifo(gate)
        job = self.begin_job("directory", "fail", 1 << 16, calls=MANY, gate=gate)
        self.until_call(job[0], MANY // 4)
        self.cluster.shards[0].kill()
        # This needs the directory, and waits for it until the leases of all nodes have ended.
        self.cluster.run("get", ID_A, "--timeout=3s", node="n0", expect=TIMED_OUT)
        # Only now the second half of the calls begins.
        with open(os.open(gate, os.O_RDWR), "rb", buffering=0):
            sets = self.results(job, calls=MANY)
        self.cluster.restart_shard(0)
        self.assertEqual(set.union(*sets.values()), {ALL})
        self.cluster.wait_for_nodes(NODES)
        sets = self.results(self.begin_job("again", "fail", 1 << 16))
        self.assertEqual(set.union(*sets.values()), {ALL})


if __name__ == "__main__":
    unittest.main()
