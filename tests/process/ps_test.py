"""A parameter server that `phalanx launch` starts: its processes are killed, and every sum stays right."""

import json
import os
import signal
import time
import unittest

from tests.process.harness import DEADLINE_S, OK
from tests.process.launches import LaunchCase

PROGRAM = os.path.abspath("tests/process/launch_ps")
SMALL = {"PHALANX_CAPACITY": "64MiB"}
CLOCKS = 20


class PsTest(LaunchCase):
    def run_tasks(self, *words, restarts=0, expect=OK, flags=()):
        """Run two servers and three workers."""
        return self.launch(
            "--servers=2", "--workers=3", f"--restarts={restarts}", *flags, "--", PROGRAM, str(CLOCKS), *words,
            variables=SMALL, expect=expect,
        )

    def expected(self, *died):
        """Return what all tasks print, of which these have died once."""
        lines = [f"[server{i}] served in life " for i in range(2)]
        lines += [f"[worker{i}] {CLOCKS} clocks in life " for i in range(3)]
        return sorted(line + str(int(line[1:].split("]")[0] in died)) for line in lines)

    def test_servers_and_workers_that_are_killed_lose_and_repeat_nothing(self):
        for words in (
            (),
            ("server0:0", "server1:1"),
            ("server0:7", "server1:7"),
            ("worker0:8", "worker1:9", "worker2:9"),
            # A worker and a server that die together: docs/parameter-server.md, Which consistency.
            ("server0:5", "worker1:5", "server1:13", "worker2:14", "later"),
            ("server1:19", "worker0:19", "later"),
        ):
            with self.subTest(words=words):
                deaths = [word.split(":")[0] for word in words if ":" in word]
                out, err = self.run_tasks(*words, restarts=len(deaths))
                self.assertEqual(sorted(out.splitlines()), self.expected(*deaths), err)
                self.assertEqual(err.count("starting it again (life 1"), len(deaths), err)

    def test_rows_that_travel_as_objects_survive_the_deaths_of_their_servers_and_workers(self):
        for words in (
            ("server0:7", "server1:7", "large"),
            ("worker0:8", "worker1:9", "worker2:9", "large"),
            # The next life of the worker repeats clocks that the server has in no snapshot.
            ("server0:5", "worker1:5", "server1:13", "worker2:14", "large", "later"),
        ):
            with self.subTest(words=words):
                deaths = [word.split(":")[0] for word in words if ":" in word]
                out, err = self.run_tasks(*words, restarts=len(deaths))
                self.assertEqual(sorted(out.splitlines()), self.expected(*deaths), err)

    def test_barriers_between_clocks_survive_the_deaths_of_servers_and_workers(self):
        for words in (
            ("server0:0", "worker1:0"),
            ("server0:7", "worker1:9", "worker2:12", "worker0:13"),
            ("server0:5", "worker1:5", "server1:13", "worker2:14", "later"),
        ):
            with self.subTest(words=words):
                deaths = [word.split(":")[0] for word in words if ":" in word]
                out, err = self.run_tasks(*words, "barriers", restarts=len(deaths))
                self.assertEqual(sorted(out.splitlines()), self.expected(*deaths), err)

    def test_deaths_on_order(self):
        deaths = [
            "server:0,0,0@push", "server:0,6,1@snapshot:1000", "server:0,3,2@restore", "worker:1,12,0@clock",
            "server:1,9,0@snapshot:999999", "server:1,15,1@clock", "worker:0,2,0@pull", "worker:2,17,0@push",
        ]  # fmt: skip
        # A worker that repeats a clock in which a server has died can pull a later state.
        flags = [f"--fail={death}" for death in deaths]
        out, err = self.run_tasks("later", restarts=len(deaths), flags=flags)
        lives = {"server0": 3, "server1": 2, "worker0": 1, "worker1": 1, "worker2": 1}
        expected = [f"[{task}] {CLOCKS} clocks in life {life}" for task, life in lives.items() if "worker" in task]
        expected += [f"[{task}] served in life {life}" for task, life in lives.items() if "server" in task]
        self.assertEqual(sorted(out.splitlines()), sorted(expected), err)
        self.assertEqual(err.count("ended by signal 9"), len(deaths), err)

    def test_a_death_on_order_that_does_not_come_fails_the_launch(self):
        for death in (f"server:0,{CLOCKS},0@push", "server:1,0,0@restore", f"worker:1,{CLOCKS + 1},0@pull"):
            with self.subTest(death=death):
                _, err = self.run_tasks(restarts=1, flags=[f"--fail={death}"], expect=1)
                self.assertIn(f"declared death {death} was not made", err)

    def test_spares_take_the_parts_of_servers_that_die(self):
        # No restarts: both servers are replaced at once, the second one by the second spare.
        deaths = ["--fail=server:1,5,0@push", "--fail=server:0,11,0@clock"]
        out, err = self.run_tasks(flags=["--spares=2", *deaths])
        lines = sorted(line.split("] ")[1] for line in out.splitlines())
        served = ["served in life 1"] * 2
        self.assertEqual(lines, [f"{CLOCKS} clocks in life 0"] * 3 + served, err)
        self.assertEqual(sorted(out.count(f"[spare{i}] served") for i in range(2)), [1, 1], out)
        self.assertIn("server1 ended by signal 9 (Killed): not started again (spares left: ", err)

    def test_servers_that_die_at_once_are_replaced_by_different_spares(self):
        # Server 1 dies first, or server 0 does: the spares see the two deaths one after the other.
        for _ in range(3):
            out, err = self.run_tasks(flags=["--spares=2", "--fail=server:1,5,0@push", "--fail=server:0,5,0@push"])
            self.assertEqual(sorted(out.count(f"[spare{i}] served in life 1") for i in range(2)), [1, 1], out + err)

    def test_a_spare_of_another_host_takes_the_part_of_a_server_whose_host_is_gone(self):
        self.cluster.start_shards()
        self.cluster.start_hosts(["a", "b", "c"])
        first, second, third = self.cluster.nodes.values()
        world = ["--server-world=2", "--worker-world=3", "--spare-world=1", "--job=train", "--grace=1ms"]
        shares = (
            (first, ["--servers=1", "--server-first=0", "--workers=3", "--worker-first=0"]),
            (second, ["--servers=1", "--server-first=1", "--workers=0"]),
            (third, ["--servers=0", "--workers=0", "--spares=1", "--spare-first=0"]),
        )
        # Worker 2 stops before it joins, so that nothing has ended when the host goes.
        stopped = self.cluster.path("worker2")
        script = f"""[ $PHALANX_TASK != worker2 ] || {{ echo $$ > {stopped}.new && mv {stopped}.new {stopped}; kill -STOP $$; }}
            exec {PROGRAM} {CLOCKS}"""
        launches = [
            self.begin(*share, *world, f"--address={node.client_address}", "--", "sh", "-c", script, variables=SMALL)
            for node, share in shares
        ]
        name = next(iter(self.cluster.nodes))
        self.describe_until(lambda servers: len(servers) == 2 and all("text" in each for each in servers.values()), name)
        second.kill()
        with open(stopped) as file:
            os.kill(int(file.read()), signal.SIGCONT)
        ended = [launch.communicate(timeout=DEADLINE_S) for launch in launches]
        self.assertEqual([launch.returncode for launch in launches], [OK] * 3, ended)
        self.assertIn("server1 ended with exit code 1: not started again (spares left: 0)", ended[1][1])
        self.assertIn("[spare0] served in life 1", ended[2][0])

    def test_spares_that_are_not_needed_end_with_the_others(self):
        out, err = self.run_tasks(restarts=1, flags=["--spares=2", "--fail=server:1,5,0@push"])
        self.assertEqual(sorted(out.splitlines()), self.expected("server1"), err)
        self.assertNotIn("spare", err)

    def run_script(self, script, *flags, expect=OK):
        """Run `script` as each task of a launch, in which $P is the program with its clocks."""
        script = f'P="{PROGRAM} {CLOCKS}"; {script}'
        return self.launch(*flags, "--", "sh", "-c", script, variables=SMALL, expect=expect)

    def test_the_only_server_fails_before_it_has_joined(self):
        script = """export PHALANX_SPARE_ABSENT_AFTER=1s
            [ $PHALANX_TASK != server0 ] || exit 3
            exec $P"""
        out, err = self.run_script(script, "--servers=1", "--workers=1", "--spares=1")
        self.assertIn("server0 ended with exit code 3: not started again (spares left: 0)", err)
        self.assertIn("[spare0] served in life 0", out)

    def test_a_server_that_fails_behind_its_end_fails_the_launch_though_there_are_spares(self):
        served = self.cluster.path("served")
        # Workers end behind the failure, or before it.
        for first, then in (("server", "worker"), ("worker", "server")):
            with self.subTest(first=first):
                script = f"""case $PHALANX_TASK in
                    spare*) $P; exit 0;;
                    {first}0) $P && touch {served};;
                    {then}0) $P; while [ ! -e {served} ]; do sleep 0.05; done; rm {served};;
                    esac
                    [ $PHALANX_TASK != server0 ] || exit 7"""
                out, err = self.run_script(script, "--servers=1", "--workers=1", "--spares=2", expect=7)
                self.assertIn("[server0] served in life 0", out)
                self.assertIn("server0 ended with exit code 7", err)

    def test_a_server_that_is_started_again_too_late_ends_with_the_others(self):
        served = self.cluster.path("served")
        script = f"""case $PHALANX_TASK:$PHALANX_LIFE in
            server1:1) while [ ! -e {served} ]; do sleep 0.05; done;;
            spare0:0) $P && touch {served}; exit;;
            esac
            exec $P"""
        begin = time.monotonic()
        out, err = self.run_script(
            script, "--servers=2", "--workers=3", "--restarts=1", "--spares=1", "--spare-after=1s",
            "--fail=server:1,5,0@push",
        )  # fmt: skip
        self.assertIn("server1 ended by signal 9 (Killed): starting it again", err)
        self.assertIn("[spare0] served in life 1", out)
        self.assertIn("[server1] served in life 2", out)
        # Else it waits for workers of a next run for a minute.
        self.assertLess(time.monotonic() - begin, DEADLINE_S / 2)

    def test_a_spare_that_dies_is_replaced_by_the_next(self):
        out, err = self.run_tasks("spare:9", flags=["--spares=2", "--fail=server:1,5,0@push"])
        self.assertEqual(sorted(out.splitlines())[0], "[server0] served in life 0", err)
        self.assertEqual(out.count("served in life 2"), 1, out)
        _, err = self.run_tasks("spare:9", flags=["--spares=1", "--fail=server:1,5,0@push"], expect=128 + 9)
        self.assertIn("spare0 ended by signal 9", err)

    def test_a_server_that_cannot_come_back_ends_the_launch(self):
        _, err = self.run_tasks("server1:5", expect=128 + 9)
        self.assertIn("server1 ended by signal 9", err)

    def test_a_job_of_which_all_has_ended_goes_on_from_disks(self):
        folder = self.cluster.path("checkpoints")
        os.mkdir(folder)
        flags = ["--job=train", f"--checkpoint-dir={folder}", "--grace=1ms"]
        # Without restarts a death ends all tasks, and the launch its private cluster.
        for words in (["worker1:8"], ["worker2:1", "server0:13"], ["worker2:8", "worker0:14"]):
            self.run_tasks(*words, flags=flags, expect=128 + 9)
            self.assertTrue(os.listdir(folder))
        # No clock before the one of the last files is made again.
        out, err = self.run_tasks("worker0:8", "server1:8", flags=flags)
        self.assertEqual(sorted(out.splitlines()), self.expected(), err)
        self.assertEqual(os.listdir(folder), [])

    def test_a_file_that_cannot_be_removed_fails_the_launch_at_once(self):
        folder, go = self.cluster.path("checkpoints"), self.cluster.path("go")
        os.mkdir(folder)
        script = f"[ $PHALANX_TASK != worker2 ] || while [ ! -e {go} ]; do sleep 0.05; done; exec $P"
        script = f'P="{PROGRAM} {CLOCKS}"; {script}'
        launch = self.begin(
            "--servers=2", "--workers=3", "--job=train", "--restarts=2", f"--checkpoint-dir={folder}",
            "--", "sh", "-c", script, variables=SMALL,
        )  # fmt: skip
        end, first = time.monotonic() + DEADLINE_S, []
        while not first:
            self.assertLess(time.monotonic(), end)
            first = [name for name in os.listdir(folder) if name.endswith("_0.part") and "_1of2_" in name]
        os.mkdir(os.path.join(folder, first[0].replace("_0.part", "_999.part")))
        with open(go, "w"):
            pass
        out, err = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual(launch.returncode, 1, out + err)
        for worker in range(3):
            self.assertIn(f"[worker{worker}] {CLOCKS} clocks in life 0", out)
        # Each life has tried, and waited for nothing.
        self.assertEqual(out.count("cannot remove"), 3, out + err)
        self.assertNotIn("has not heard from", out)

    def describe_until(self, condition, node):
        """Describe the job until `condition` holds for what its servers say, by rank; return the whole."""
        end = time.monotonic() + DEADLINE_S
        while True:
            look = self.cluster.begin("describe", "--job=train", "--json", node=node)
            out, job = look.communicate(timeout=DEADLINE_S)[0], {}
            if look.returncode == OK:  # else there is no such job yet
                job = json.loads(out)
            servers = {server["rank"]: server for server in job.get("servers", [])}
            if condition(servers):
                return servers
            self.assertLess(time.monotonic(), end, job)

    def test_describe_shows_what_servers_do(self):
        self.cluster.start_shards()
        self.cluster.start_nodes(2)
        here, there = self.cluster.nodes
        pids = self.cluster.path("pids")
        os.mkdir(pids)
        # Worker 2 stops before it joins, so the others wait for it in clock 1.
        script = f"""echo $$ > {pids}/$PHALANX_TASK.new && mv {pids}/$PHALANX_TASK.new {pids}/$PHALANX_TASK
            [ $PHALANX_TASK != worker2 ] || kill -STOP $$
            exec {PROGRAM} {CLOCKS}"""
        launch = self.begin(
            "--servers=2", "--workers=3", "--job=train", f"--address={self.cluster.nodes[here].client_address}",
            "--", "sh", "-c", script, variables=SMALL,
        )  # fmt: skip
        waits = "worker 1: clock 1, 1 pulls of clock 1 on wait for worker 2"

        def all_wait(servers):
            return all(waits in servers.get(rank, {}).get("text", "") for rank in range(2))

        # A client of another node sees the same.
        text = self.describe_until(all_wait, there)[0]["text"]
        self.assertIn("server 0 of 2, 3 workers\n", text)
        self.assertIn('table "w": bsp, clock 0, ', text)
        self.assertIn("worker 2: clock 0\n", text)
        self.assertIn(waits, self.cluster.run("describe", "--job=train", node=here))

        def signal_to(task, number):
            with open(f"{pids}/{task}") as file:
                os.kill(int(file.read()), number)

        signal_to("server1", signal.SIGSTOP)
        begin = time.monotonic()
        servers = self.describe_until(lambda servers: "error" in servers.get(1, {}), there)
        self.assertLess(time.monotonic() - begin, DEADLINE_S / 2)
        self.assertIn("it has not answered", servers[1]["error"])
        self.assertIn(waits, servers[0]["text"])
        self.assertIn("server 1: it has not answered", self.cluster.run("describe", "--job=train", node=here))
        signal_to("server1", signal.SIGCONT)
        self.describe_until(all_wait, here)
        signal_to("worker2", signal.SIGCONT)
        out, err = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual(sorted(out.splitlines()), self.expected(), err)
        self.assertNotIn("servers", json.loads(self.cluster.run("describe", "--job=train", "--json", node=here)))

    def test_describe_shows_a_server_that_waits_for_the_files_of_others(self):
        self.cluster.start_shards()
        self.cluster.start_nodes(1)
        (name,) = self.cluster.nodes
        folder = self.cluster.path("checkpoints")
        os.mkdir(folder)
        script = f"[ $PHALANX_TASK != server1 ] || unset PHALANX_CHECKPOINT_DIR; exec {PROGRAM} {CLOCKS}"
        launch = self.begin(
            "--servers=2", "--workers=1", "--job=train", f"--address={self.cluster.nodes[name].client_address}",
            f"--checkpoint-dir={folder}", "--", "sh", "-c", script, variables=SMALL,
        )  # fmt: skip
        servers = self.describe_until(
            lambda servers: "agrees with the others" in servers.get(0, {}).get("text", "") and "text" in servers.get(1, {}),
            name,
        )
        self.assertIn("all servers have a directory of checkpoints, or none has", servers[0]["text"])
        # Without a node the members are shown, and it is said what is not.
        look = self.cluster.begin(
            "describe", "--job=train", "--json", f"--directory={self.cluster.directory}",
            "--address=unix:/nonexistent", "--connect-timeout=100ms",
        )  # fmt: skip
        out, err = look.communicate(timeout=DEADLINE_S)
        self.assertEqual(look.returncode, OK, err)
        self.assertEqual(len(json.loads(out)["members"]), 3)
        self.assertNotIn("servers", json.loads(out))
        self.assertIn("servers not asked: ", err)
        launch.terminate()
        launch.communicate(timeout=DEADLINE_S)

    def test_servers_do_not_wait_for_ever_for_a_worker_that_has_not_left(self):
        out, err = self.run_tasks("worker1:quit", expect=1, flags=["--grace=1ms"])
        self.assertIn("all workers have ended; waiting for server", err)
        self.assertIn("ended with exit code 1", err)
        self.assertIn("no worker has lived, and worker 1 has died in life 0", out)


if __name__ == "__main__":
    unittest.main()
