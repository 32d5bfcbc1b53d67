"""`phalanx launch --servers S --workers W`: the tasks of both roles, their deaths, and the end of the launch."""

import os
import signal
import unittest

from tests.process.harness import DEADLINE_S, ERROR, OK, USAGE
from tests.process.launches import NO_CLUSTER, LaunchCase

ROLES = os.path.abspath("tests/process/launch_roles")
SMALL = {"PHALANX_CAPACITY": "64MiB"}
ROUNDS = 20
# What a task has, on one line.
PLACE = "echo $PHALANX_TASK $PHALANX_ROLE $PHALANX_WORLD $DMLC_ROLE $DMLC_TASK_ID $DMLC_NUM_SERVER $DMLC_NUM_WORKER"
# Dies as the library does in the point that is declared for this life.
DIE = '[ -z "$PHALANX_FAIL" ] || { echo "$PHALANX_LIFE $$ $PHALANX_FAIL" > "$PHALANX_FAIL_MARK"; kill -9 $$; }'
IS_SERVER = "[ $PHALANX_ROLE = server ]"


class RolesTest(LaunchCase):
    def shell(self, script, *flags, **settings):
        return self.launch(NO_CLUSTER, *flags, "--", "sh", "-c", script, **settings)

    def begin_shell(self, script, *flags, **settings):
        return self.begin(NO_CLUSTER, *flags, "--", "sh", "-c", script, **settings)

    # ---- two roles that work together

    def lines(self, servers, workers, restarted):
        """Return what all tasks print, of which these have died once."""
        lines = [f"[server{i}] answered in life" for i in range(servers)]
        lines += [f"[worker{i}] asked {ROUNDS} in life" for i in range(workers)]
        return sorted(f"{line} {int(line[1:].split(']')[0] in restarted)}" for line in lines)

    def test_servers_and_workers_exchange_messages_and_survive_deaths(self):
        out, err = self.launch(
            "--servers=2", "--workers=3", "--restarts=2", "--", ROLES, str(ROUNDS), "server1:5", "worker2:7", variables=SMALL
        )
        self.assertEqual(sorted(out.splitlines()), self.lines(2, 3, ("server1", "worker2")))
        reports = sorted(err.splitlines())
        self.assertEqual(len(reports), 2, err)
        for report, task in zip(reports, ("server1", "worker2")):
            self.assertIn(f"phalanx launch: {task} ended by signal 9 (Killed): starting it again (life 1", report)

    def test_launches_on_several_hosts_make_one_job(self):
        self.cluster.start_shards()
        self.cluster.start_nodes(3)
        shares = (
            ("--servers=1", "--server-first=0", "--workers=1", "--worker-first=0"),
            ("--servers=1", "--server-first=1", "--workers=2", "--worker-first=1"),
            ("--servers=0", "--workers=1", "--worker-first=3"),
        )
        launches = [
            self.begin(
                *share, "--server-world=2", "--worker-world=4", "--job=ps", "--restarts=1", "--grace=1ms",
                f"--address={node.client_address}", "--", ROLES, str(ROUNDS), "server1:4", "worker0:6", "worker3:9",
            )
            for share, node in zip(shares, self.cluster.nodes.values())
        ]
        lines = []
        for launch in launches:
            out, err = launch.communicate(timeout=DEADLINE_S)
            self.assertEqual(launch.returncode, OK, out + err)
            self.assertNotIn("waiting for", err)  # a launch does not know when the workers of others have ended
            lines += out.splitlines()
        self.assertEqual(sorted(lines), self.lines(2, 4, ("server1", "worker0", "worker3")))

    # ---- what a task gets

    def test_tasks_know_the_numbers_of_both_roles(self):
        outer = {"DMLC_ROLE": "scheduler", "DMLC_NUM_SERVER": "7", "DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_RANK": "3"}
        script = f"{PLACE} ${{DMLC_PS_ROOT_URI-none}} ${{DMLC_RANK-none}}"
        out, err = self.shell(script, "--servers=2", "--workers=3", variables=outer)
        self.assertEqual(
            sorted(out.splitlines()),
            [f"[server{i}] server{i} server 2 server {i} 2 3 10.0.0.1 none" for i in range(2)]
            + [f"[worker{i}] worker{i} worker 3 worker {i} 2 3 10.0.0.1 none" for i in range(3)],
        )
        self.assertEqual(err, "")

    def test_each_role_has_its_place_in_the_job(self):
        for variables, flags, servers, workers in (
            ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2"}, [], (2, 3), (4, 6)),
            ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2"}, ["--server-first=0"], (0, 3), (4, 6)),
            ({"JOB_COMPLETION_INDEX": "1"}, ["--server-world=2", "--worker-world=8"], (1, 2), (2, 8)),
            ({}, ["--worker-world=5", "--worker-first=3"], (0, 1), (3, 5)),
        ):
            with self.subTest(variables=variables, flags=flags):
                out, _ = self.shell(PLACE, "--servers=1", "--workers=2", "--no-prefix", "--job=j", *flags, variables=variables)
                numbers = f"{servers[1]} {workers[1]}"
                self.assertEqual(
                    sorted(out.splitlines()),
                    [
                        f"{role}{i} {role} {world} {role} {i} {numbers}"
                        for role, (first, world), tasks in (("server", servers, 1), ("worker", workers, 2))
                        for i in range(first, first + tasks)
                    ],
                )

    # ---- declared deaths

    def test_tasks_of_both_roles_die_on_order(self):
        script = f"{DIE}; echo life $PHALANX_LIFE"
        flags = ("--servers=2", "--workers=2", "--restarts=4")
        out, _ = self.shell(script, *flags, "--fail=server1@57", "--fail=1@57", "--fail=worker0@3", "--fail=server1@load")
        lives = {"server0": 0, "server1": 2, "worker0": 1, "worker1": 1}
        self.assertEqual(sorted(out.splitlines()), [f"[{task}] life {life}" for task, life in lives.items()])

    def test_a_death_that_is_not_made_is_named_with_its_task(self):
        flags = ("--servers=2", "--workers=2")
        _, err = self.shell(f"{IS_SERVER} || exec sleep 600", *flags, "--fail=server1@5", expect=ERROR)
        self.assertIn("declared death server1@5 was not made: server1 ended with exit code 0 in life 0", err)
        _, err = self.launch(NO_CLUSTER, *flags, "--", "true", "mock=1,0,0,0", expect=ERROR)
        self.assertIn("declared death mock=1,0,0,0 was not made: worker1 ended with exit code 0 in life 0", err)

    # ---- the end

    def test_tasks_of_both_roles_share_the_restarts(self):
        _, err = self.shell("[ $PHALANX_TASK$PHALANX_LIFE != worker00 ] && [ $PHALANX_TASK$PHALANX_LIFE != server00 ]",
                            "--servers=1", "--workers=1", "--restarts=2")
        self.assertEqual(err.count("starting it again"), 2)
        _, err = self.shell("exit 3", "--servers=1", "--workers=1", "--restarts=3", expect=3)
        self.assertEqual(err.count("starting it again"), 3)

    def test_a_task_of_either_role_that_fails_stops_all(self):
        for role in ("server", "worker"):
            with self.subTest(role=role):
                script = f"[ $PHALANX_TASK = {role}1 ] || exec sleep 600; exit 7"
                _, err = self.shell(script, "--servers=2", "--workers=2", expect=7)
                self.assertEqual(err, f"phalanx launch: {role}1 ended with exit code 7 (ABORTED)\n")

    def test_servers_that_still_work_when_the_workers_have_ended_are_waited_for_and_named(self):
        fifo = self.fifo()
        script = f"{IS_SERVER} || exit 0; read line < {fifo}; echo wrote $line; trap 'echo stopped' TERM"
        launch = self.begin_shell(script, "--servers=1", "--workers=2", "--grace=1ms")
        self.assertEqual(launch.stderr.readline(), "phalanx launch: all workers have ended; waiting for server0\n")
        with open(fifo, "w", encoding="utf-8") as writer:
            writer.write("model\n")
        self.assertEqual(launch.communicate(timeout=DEADLINE_S), ("[server0] wrote model\n", ""))
        self.assertEqual(launch.returncode, OK)

    def test_servers_that_never_end_can_be_stopped(self):
        script = f"{IS_SERVER} || exit 0; exec sleep 600"
        launch = self.begin_shell(script, "--servers=2", "--workers=1", "--grace=1ms")
        self.assertEqual(launch.stderr.readline(), "phalanx launch: all workers have ended; waiting for server0, server1\n")
        launch.send_signal(signal.SIGTERM)
        self.assertEqual(launch.wait(DEADLINE_S), 128 + signal.SIGTERM)

    def test_a_server_that_fails_when_the_workers_have_ended_is_started_again(self):
        fifo = self.fifo()
        # The launch has seen the end of the worker when it reports that it waits.
        script = f"{IS_SERVER} || exit 0; [ $PHALANX_LIFE = 1 ] || {{ read line < {fifo}; exit 9; }}; echo wrote"
        for restarts, out, code in ((1, "[server0] wrote\n", OK), (0, "", 9)):
            with self.subTest(restarts=restarts):
                launch = self.begin_shell(script, "--servers=1", "--workers=1", f"--restarts={restarts}", "--grace=1ms")
                self.assertIn("waiting for server0", launch.stderr.readline())
                with open(fifo, "w", encoding="utf-8") as writer:
                    writer.write("\n")
                self.assertEqual(launch.communicate(timeout=DEADLINE_S)[0], out)
                self.assertEqual(launch.returncode, code)

    # ---- bad input

    def test_combinations_without_a_meaning_are_usage_errors(self):
        both = ["--servers=1", "--workers=2"]
        for flags, text in (
            (["--servers=1"], "--workers is required for a parameter server"),
            (["--workers=1"], "--servers is required for a parameter server"),
            (["--server-world=1"], "--servers is required for a parameter server"),
            (["--servers=0", "--workers=0"], "--servers=0 --workers=0 starts no task"),
            (["--servers=1", "--workers=1", "--spare-first=1"], "--spare-first is for launches that start spares"),
            (["--servers=1", "--workers=1", "--spares=0", "--spare-first=1"], "--spare-first is for launches that start"),
            (["--servers=0", "--workers=2"], "--servers=0 needs --server-world"),
            (["--servers=2", "--workers=0"], "--workers=0 needs --worker-world"),
            ([*both, "-n1"], "--tasks has no meaning with --servers and --workers"),
            ([*both, "--role=worker"], "--role has no meaning with --servers and --workers"),
            ([*both, "--world=3"], "--world has no meaning with --servers and --workers: give --server-world and --worker-world"),
            ([*both, "--first=0"], "--first has no meaning with --servers and --workers: give --server-first and --worker-first"),
            ([*both, "--worker-world=4"], "--worker-first is required with --worker-world=4 and --workers=2"),
            ([*both, "--server-world=2", "--server-first=2"], "task 2 (--server-first=2 --servers=1) is beyond --server-world=2"),
            ([*both, "--server-world=2", "--server-first=0"], "the same --job"),
            (["--spares=1"], "--spares is for jobs with --servers and --workers"),
            ([*both, "--spares=1", "--spare-world=2"], "--spare-first is required with --spare-world=2 and --spares=1"),
            ([*both, "--spares=0", "--spare-world=1"], "the same --job"),
            (["--servers=-1", "--workers=2"], '--servers: "-1" is not a whole number from 0 to'),
            ([*both, "--fail=2@5"], "there is no worker2 in a world of 2"),
            ([*both, "--fail=server1@5"], "there is no server1 in a world of 1"),
            ([*both, "--fail=ps1@5"], "expected TASK@POINT like 3@57 or server3@57"),
        ):
            with self.subTest(flags=flags):
                _, err = self.shell("true", *flags, expect=USAGE)
                self.assertIn(text, err)
        _, err = self.launch(
            "--servers=0", "--server-world=1", "--workers=1", "--job=j", "--", "true", expect=USAGE
        )
        self.assertIn("set --address or PHALANX_ADDRESS", err)


if __name__ == "__main__":
    unittest.main()
