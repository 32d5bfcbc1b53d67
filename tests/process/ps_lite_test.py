"""Programs for ps-lite as whole jobs: a scheduler, servers and workers that know each other by the DMLC_* variables alone. What
they compute, what is refused, and that the death of any process is an error of all others."""

import os
import re
import signal
import socket
import subprocess
import time
import unittest

from tests.process.harness import DEADLINE_S, OK, wait_for_end
from tests.process.ps_lite_jobs import ABORTED, CASES, PROGRAMS, PsLiteJobs

# As ps-lite's own, with a process that waits for all.
LOCAL_SH = """#!/bin/bash
export DMLC_NUM_SERVER=$1; shift
export DMLC_NUM_WORKER=$1; shift
export DMLC_PS_ROOT_URI='127.0.0.1'
export DMLC_PS_ROOT_PORT=${DMLC_PS_ROOT_PORT:-8000}
export DMLC_ROLE='scheduler'
"$@" & pids=$!
export DMLC_ROLE='server'
for ((i=0; i<DMLC_NUM_SERVER; ++i)); do "$@" & pids="$pids $!"; done
export DMLC_ROLE='worker'
for ((i=0; i<DMLC_NUM_WORKER; ++i)); do "$@" & pids="$pids $!"; done
for pid in $pids; do wait $pid || exit 1; done
"""


def processor_time(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def processes_with(runtime):
    """Return the processes that have this XDG_RUNTIME_DIR."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if f"XDG_RUNTIME_DIR={runtime}".encode() in variables:
            found.append(int(pid))
    return found


class PsLiteTest(PsLiteJobs):
    # ---- ps-lite's own tests

    def test_the_script_of_ps_lite(self):
        script = self.cluster.path("local.sh")
        with open(script, "w") as file:
            file.write(LOCAL_SH)
        variables = self.variables("")
        for program in ("connection", "simple_app", "kv_app"):
            with self.subTest(program):
                _, err = self.end(self.begin(variables, "bash", script, "2", "2", f"{PROGRAMS}/{program}"))
                self.assertEqual(err.count(": ok"), 2 if program == "kv_app" else 0, err)

    def test_a_server_that_is_made_before_start(self):
        errors = self.check(f"{PROGRAMS}/kv_app", "before")
        self.assertIn("worker 0: ok", errors["worker", 0])
        self.assertIn("worker 1: ok", errors["worker", 1])

    def test_two_customers_in_a_process(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                errors = self.check(f"{PROGRAMS}/multi_workers", workers=2 * processes, processes=processes)
                self.assertEqual("".join(errors.values()).count(": ok"), 2 * processes, errors)

    def test_the_benchmark_of_many_keys(self):
        errors = self.check(f"{PROGRAMS}/kv_app_benchmark", "300000", workers=1)
        self.assertIn("pull 300000 keys", errors["worker", 0])

    # ---- what works

    def test_values_of_all_shapes(self):
        self.check(CASES, "values")

    def test_callbacks_wait(self):
        self.check(CASES, "callbacks")

    def test_barriers_of_groups(self):
        self.check(CASES, "barriers")

    def test_a_job_after_another_one(self):
        self.check(CASES, "twice")

    def test_messages_between_customers_of_a_program(self):
        self.check(CASES, "messages", servers=2)

    def test_many_requests(self):
        self.check(CASES, "many", servers=1, workers=1)

    def test_a_server_that_is_busy_in_finalize(self):
        self.check(CASES, "late", servers=1, workers=1)

    def test_responses_to_customers_that_are_gone(self):
        self.check(CASES, "again", servers=1, workers=1)

    def test_a_worker_that_leaves_before_its_answers(self):
        self.check(CASES, "leaves", servers=1, workers=2)

    def test_pushes_to_a_server_that_is_stopped(self):
        job = self.job(CASES, "flood", servers=1, workers=1)
        server, worker = job["server", 0], job["worker", 0]
        self.assertEqual(server.stdout.readline(), "stops\n")
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
        # The worker waits for room, and so uses no time any more.
        used = -1
        while used != (used := processor_time(worker.pid)):
            with self.assertRaises(subprocess.TimeoutExpired):
                worker.wait(timeout=2)
        server.send_signal(signal.SIGCONT)
        for process in job.values():
            self.end(process)

    def test_a_private_cluster_leaves_nothing_behind(self):
        for killed in (False, True):
            with self.subTest(killed=killed):
                runtime = self.cluster.path(f"runtime{killed}")
                os.mkdir(runtime, 0o700)
                if killed:
                    job = self.job(CASES, "endless", servers=1, workers=1, XDG_RUNTIME_DIR=runtime)
                    self.assertEqual(job["worker", 0].stdout.readline(), "running\n")
                    self.assertNotEqual(processes_with(runtime), [])
                    job["scheduler", 0].kill()
                    for place in (("server", 0), ("worker", 0)):
                        self.end(job[place], ABORTED)
                else:
                    self.check(f"{PROGRAMS}/connection", servers=1, workers=1, XDG_RUNTIME_DIR=runtime)
                for pid in processes_with(runtime):
                    wait_for_end(pid)
                self.assertEqual(os.listdir(runtime), [])

    def test_processes_on_several_nodes(self):
        self.cluster.start_shards()
        nodes = self.cluster.start_nodes(2)
        addresses = [node.client_address for node in nodes]
        self.check(CASES, "values", addresses=addresses)
        self.check(CASES, "barriers", addresses=addresses)

    def test_a_launch_without_a_scheduler(self):
        for command in ((f"{PROGRAMS}/kv_app",), (CASES, "barriers"), (CASES, "callbacks")):
            with self.subTest(command):
                self.end(self.launch(*command))

    def test_launches_of_one_job_after_another(self):
        self.cluster.start_shards()
        (node,) = self.cluster.start_nodes(1)
        flags = ["--job=again", f"--address={node.client_address}"]
        for name, status in (("barriers", OK), ("values", OK), ("drops", 128 + signal.SIGABRT), ("barriers", OK)):
            with self.subTest(name):
                _, err = self.end(self.launch(CASES, name, flags=flags), status)
                self.assertEqual("the slicer has dropped keys" in err, name == "drops", err)
        _, err = self.end(self.launch(CASES, "drops", flags=[*flags, "--restarts=8"]), 128 + signal.SIGABRT)
        self.assertIn("this worker was started again", err)

    def test_variables_without_an_effect_are_listed_by_the_scheduler(self):
        errors = self.check(f"{PROGRAMS}/connection", servers=1, workers=1, PS_RESEND="1", DMLC_INTERFACE="eth0")
        line = "ps: without effect here: DMLC_INTERFACE, PS_RESEND\n"
        self.assertEqual(errors, {("scheduler", 0): line, ("server", 0): "", ("worker", 0): ""})

    # ---- what is refused

    def test_wrong_arguments_are_an_error_of_the_caller_and_end_the_job(self):
        for name, text in (
            ("unsorted", "keys increase strictly"),
            ("doubled", "keys increase strictly"),
            ("lengths", "the lengths of 2 keys"),
            ("widths", "2 keys with 3 values"),
            ("foreign", "there is no request 77 of customer 0 of app 0"),
            ("drops", "the slicer has dropped keys"),
            ("arrays", "a message has 1024 arrays: at most 1023 are sent"),
            ("control", "messages of control are the library's own"),
            ("groups", "4 is not the id of a node"),
            ("customers", "customer 0 of app 0 exists already"),
        ):
            with self.subTest(name):
                job = self.job(CASES, name, servers=1, workers=1)
                self.assertIn(text, self.end(job["worker", 0], ABORTED)[1])
                for place in (("scheduler", 0), ("server", 0)):
                    self.assertIn("worker 9 (rank 0) has died", self.end(job[place], ABORTED)[1])

    def test_wrong_variables(self):
        for variable, value, text in (
            ("DMLC_ROLE", "", "DMLC_ROLE is not set"),
            ("DMLC_ROLE", "joint", "DMLC_ROLE=joint: the value is scheduler, server or worker"),
            ("DMLC_NUM_WORKER", "many", "DMLC_NUM_WORKER=many: the value is a number from 1"),
            ("DMLC_PS_ROOT_URI", "", "DMLC_PS_ROOT_URI is not set"),
            ("DMLC_PS_ROOT_URI", "192.0.2.1", "not an address of this host"),
            ("DMLC_PS_ROOT_PORT", "", "DMLC_PS_ROOT_PORT is not set"),
            ("PHALANX_LIBRARY", "/nonexistent", "PHALANX_LIBRARY: /nonexistent"),
        ):
            with self.subTest(variable=variable, value=value):
                variables = self.variables("scheduler", **{variable: value})
                self.assertIn(text, self.end(self.begin(variables, f"{PROGRAMS}/connection"), ABORTED)[1])

    def test_a_job_without_servers(self):
        job = self.job(CASES, "serverless", servers=0, workers=1)
        self.assertIn("the job has no servers (DMLC_NUM_SERVER=0)", self.end(job["worker", 0], ABORTED)[1])

    def test_a_root_port_that_is_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            variables = self.variables("scheduler")
            err = self.end(self.begin(variables, f"{PROGRAMS}/connection"), ABORTED)[1]
        self.assertIn(f"cannot listen at 127.0.0.1:{self.port}", err)
        self.assertIn("the port is in use", err)

    def test_processes_that_do_not_come(self):
        worker = self.begin(self.variables("worker", PHALANX_PS_TIMEOUT="1"), f"{PROGRAMS}/connection")
        self.assertIn("no scheduler at 127.0.0.1", self.end(worker, ABORTED)[1])
        scheduler = self.begin(self.variables("scheduler", PHALANX_PS_TIMEOUT="3"), f"{PROGRAMS}/connection")
        server = self.begin(self.variables("server"), f"{PROGRAMS}/connection")
        self.assertIn("missing: 1 server, 2 workers", self.end(scheduler, ABORTED)[1])
        self.end(server, ABORTED)

    def test_a_process_too_many(self):
        job = self.job(CASES, "endless", servers=1, workers=1)
        self.assertEqual(job["worker", 0].stdout.readline(), "running\n")
        more = self.begin(self.variables("worker", 1, 1), CASES, "endless")
        self.assertIn("the job has all its 1 processes of role worker", self.end(more, ABORTED)[1])
        more = self.begin(self.variables("worker", 1, 3), CASES, "endless")
        self.assertIn("but this process 3 and 1", self.end(more, ABORTED)[1])

    def test_an_address_that_the_scheduler_has_not(self):
        self.begin(self.variables("scheduler"), f"{PROGRAMS}/connection")
        worker = self.begin(self.variables("worker", PHALANX_ADDRESS="unix:/x"), f"{PROGRAMS}/connection")
        self.assertIn("set it for all processes or for none", self.end(worker, ABORTED)[1])

    # ---- deaths

    def test_the_end_of_the_node_during_start(self):
        self.cluster.start_shards()
        node = self.cluster.start_nodes(1)[0]
        # It answers as a scheduler that then does not come.
        with socket.socket() as root:
            root.bind(("127.0.0.1", self.port))
            root.listen()
            worker = self.begin(
                self.variables("worker", 1, 1, PHALANX_ADDRESS=node.client_address, PS_VERBOSE="1"), CASES, "values"
            )
            asking, _ = root.accept()
            with asking:
                asking.recv(1024)
                asking.sendall(f"ok 0 0 a-job {node.client_address}\n".encode())
                self.assertEqual(asking.recv(1024), b"joined 0\n")
            self.assertIn("is in job a-job", worker.stderr.readline())
            node.kill()
            begin = time.monotonic()
            self.assertIn("no member of its job any more", self.end(worker, ABORTED)[1])
            self.assertLess(time.monotonic() - begin, DEADLINE_S / 2)

    def test_a_call_in_a_handler_after_a_death(self):
        job = self.job(CASES, "survives", servers=1, workers=1)
        self.assertEqual(job["server", 0].stdout.readline(), "running\n")
        job["worker", 0].kill()
        self.assertEqual(self.end(job["server", 0])[0], "ok\n")

    def test_a_callback_that_runs_at_a_death(self):
        job = self.job(CASES, "filling", servers=1, workers=1)
        self.assertEqual(job["worker", 0].stdout.readline(), "running\n")
        job["server", 0].kill()
        self.assertEqual(self.end(job["worker", 0], ABORTED)[0], "waited\n")

    def kill(self, program, victim, text, addresses=None):
        """Kill a process of a job; all others end with an error, which names it."""
        job = self.job(CASES, program, addresses=addresses)
        for rank in range(2):
            self.assertEqual(job["worker", rank].stdout.readline(), "running\n")
        job[victim].kill()
        for place, process in job.items():
            if place != victim:
                self.assertRegex(self.end(process, ABORTED)[1], text, place)

    def test_the_death_of_any_process_is_an_error_of_all(self):
        self.cluster.start_shards()
        addresses = [node.client_address for node in self.cluster.start_nodes(2)]
        for program in ("endless", "wait"):
            for victim, name in (
                (("server", 1), "server 10 (rank 1)"), (("worker", 1), "worker 11 (rank 1)"), (("scheduler", 0), "scheduler 1")
            ):
                with self.subTest(program=program, victim=victim):
                    self.kill(program, victim, re.escape(f"{name} has died"), addresses)

    def test_deaths_with_a_private_cluster(self):
        self.kill("endless", ("server", 0), r"server 8 \(rank 0\) has died")
        # The cluster ends with the scheduler.
        self.kill("endless", ("scheduler", 0), "scheduler 1(, or its private cluster,)? has died")

    def test_a_function_that_throws_is_the_death_of_its_server(self):
        job = self.job(CASES, "throws", servers=1, workers=1)
        self.assertIn("as it was asked", self.end(job["server", 0], ABORTED)[1])
        self.assertIn("server 8 (rank 0) has died", self.end(job["worker", 0], ABORTED)[1])
        self.assertIn("server 8 (rank 0) has died", self.end(job["scheduler", 0], ABORTED)[1])


if __name__ == "__main__":
    unittest.main()
