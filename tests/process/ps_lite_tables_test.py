"""Programs for ps-lite with KVServerDefaultHandle, as whole jobs: servers are killed at many points and started again, and the
sums are exact; without a next life, the death is an error of all others, which names it."""

import os
import re
import signal
import time
import unittest

from tests.process.harness import DEADLINE_S, OK
from tests.process.ps_lite_jobs import ABORTED, CASES, PROGRAMS, PsLiteJobs

TABLES = f"{PROGRAMS}/tables"
ROUNDS = 60


class PsLiteTablesTest(PsLiteJobs):
    def read_until(self, process, *lines):
        """Read the standard output of a process up to one of these lines, and return that one."""
        for line in process.stdout:
            if line.strip() in lines:
                return line.strip()
        self.fail(f"it has ended before {lines}: {process.communicate()}")

    def restart(self, job, rank, *command, **more):
        """Kill a server, and start its next life."""
        job["server", rank].kill()
        job["server", rank].communicate()
        job["server", rank] = self.begin(self.variables("server", DMLC_RANK=str(rank), **more), *command)

    def end_all(self, job, **expect):
        return {place: self.end(process, **expect) for place, process in job.items()}

    def run_with_deaths(self, deaths, *words, addresses=None, reads=("worker", 0), **more):
        """Run a job; `deaths` are servers, by the line of a worker at which they are killed."""
        more["TABLES_END"] = self.new_path()
        job = self.job(TABLES, str(ROUNDS), *words, addresses=addresses, **more)
        left = dict(deaths)
        while left:
            line = self.read_until(job[reads], *left)
            for rank in left.pop(line):
                if addresses is not None:
                    more["PHALANX_ADDRESS"] = addresses[rank % len(addresses)]
                self.restart(job, rank, TABLES, str(ROUNDS), *words, **more)
        self.make(more["TABLES_END"])
        return self.end_all(job)

    def new_path(self):
        return self.cluster.path(f"end{time.monotonic_ns()}")

    def make(self, path):
        with open(path, "w", encoding="utf-8"):
            pass

    # ---- without deaths

    def test_sums(self):
        for words, settings in (
            ((), {"servers": 3}),
            (("before",), {"servers": 1, "workers": 3}),
            (("two",), {"workers": 4, "processes": 2}),
        ):
            with self.subTest(words):
                self.check(TABLES, str(ROUNDS), *words, **settings)

    def test_the_last_handle_before_the_first_request_counts(self):
        self.check(CASES, "table_two_handles")

    def test_another_handle_after_it_is_refused(self):
        self.check(CASES, "table_late_handle")

    def test_the_same_handle_after_it_is_refused(self):
        self.check(CASES, "table_same_handle")

    def test_pushes_of_callbacks_in_finalize(self):
        self.check(CASES, "table_chained")

    def test_workers_that_do_not_wait_in_finalize(self):
        self.check(TABLES, str(ROUNDS), "leaves")

    def test_wrong_values_are_an_error_of_the_caller(self):
        for name, text in (
            ("table_arrays", "app 0: a request without arrays of keys and values"),
            ("table_widths", r"app 0: \(2 keys with 4 values\): KVServerDefaultHandle has one for each"),
            ("table_types", "app 0: keys and values of the types UINT64 and DOUBLE, but the server has UINT64 and FLOAT"),
        ):
            with self.subTest(name):
                job = self.job(CASES, name, servers=1, workers=1)
                self.assertRegex(self.end(job["worker", 0], ABORTED)[1], text)
                for place in (("scheduler", 0), ("server", 0)):
                    self.assertIn("worker 9 (rank 0) has died", self.end(job[place], ABORTED)[1])

    # ---- servers that are started again

    def test_servers_that_die_while_workers_push_and_pull(self):
        for deaths in (
            {"round 0": [0], "round 3": [1], "round 5": [1], "round 20": [0], "round 59": [1]},
            {"round 10": [0, 1], "round 11": [1, 0], "end": [0]},
            {"pushed": [0, 1], "end": [1, 0]},
        ):
            for words in ((), ("before",)):
                with self.subTest(deaths=deaths, words=words):
                    self.run_with_deaths(deaths, *words)

    def test_servers_that_die_on_several_nodes(self):
        self.cluster.start_shards()
        addresses = [node.client_address for node in self.cluster.start_nodes(2)]
        self.run_with_deaths({"round 4": [0], "round 30": [1], "pushed": [0]}, addresses=addresses)

    def test_servers_that_die_while_a_worker_leaves_that_has_waited_for_nothing(self):
        self.run_with_deaths({"leaves": [0, 1]}, "leaves", reads=("worker", 1))

    def test_a_server_is_awaited_for_longer_than_calls_are(self):
        # A push waits for the next life, which joins a table again, as long as that may take.
        self.run_with_deaths({"round 7": [1], "round 20": [0]}, PHALANX_PS_TIMEOUT="30", PHALANX_PS_RESTART_TIMEOUT="600")

    def test_a_next_life_without_a_rank_takes_that_of_the_dead_one(self):
        end = self.new_path()
        job = self.job(TABLES, str(ROUNDS), TABLES_END=end)
        self.read_until(job["worker", 0], "round 9")
        job["server", 0].kill()
        job["server", 0].communicate()
        job["server", 0] = self.begin(self.variables("server"), TABLES, str(ROUNDS))
        self.make(end)
        self.end_all(job)

    def test_a_server_that_dies_in_start(self):
        job = {("scheduler", 0): self.begin(self.variables("scheduler"), TABLES)}
        for rank in range(2):
            job["server", rank] = self.begin(self.variables("server", DMLC_RANK=str(rank), PS_VERBOSE="1"), TABLES)
        self.assertIn("is in job", job["server", 1].stderr.readline())
        # Nothing has begun: its next life waits with the others, also in their first barrier.
        self.restart(job, 1, TABLES)
        for rank in range(2):
            job["worker", rank] = self.begin(self.variables("worker", DMLC_RANK=str(rank)), TABLES)
        self.end_all(job)

    def test_a_pull_waits_for_what_each_worker_has_pushed_before(self):
        self.cluster.start_shards()
        node = self.cluster.start_nodes(1)[0]
        more = {"PHALANX_ADDRESS": node.client_address}
        scheduler = self.begin(self.variables("scheduler", PS_VERBOSE="1", **more), TABLES, "8", "death")
        name = re.fullmatch(r"ps: scheduler 1 is in job (ps-lite:.*)\n", scheduler.stderr.readline())[1]
        job = {("scheduler", 0): scheduler}
        for role in ("server", "worker"):
            for rank in range(2):
                job[role, rank] = self.begin(self.variables(role, DMLC_RANK=str(rank), **more), TABLES, "8", "death")
        # What worker 1 has pushed, and was answered, is in no snapshot: only this process has it.
        self.read_until(job["worker", 0], "pushed")
        job["server", 0].kill()
        self.read_until(job["worker", 0], "dead")
        job["worker", 1].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, job["worker", 1].pid, os.WSTOPPED | os.WNOWAIT)
        job["server", 0].communicate()
        job["server", 0] = self.begin(self.variables("server", DMLC_RANK="0", **more), TABLES, "8", "death")
        # The workers of the table are all processes, in the order of their ids.
        waits = r"1 pulls wait until what the life before has had was sent again by worker 4\n"
        end = time.monotonic() + DEADLINE_S
        while not re.search(waits, described := self.describe(node, f"{name}:app0")):
            self.assertLess(time.monotonic(), end, described)
        job["worker", 1].send_signal(signal.SIGCONT)
        self.end_all(job)

    def describe(self, node, job):
        """Return what the servers of a job say; a text without it while they have not joined."""
        look = self.cluster.begin("describe", f"--job={job}", f"--address={node.client_address}")
        out, err = look.communicate(timeout=DEADLINE_S)
        return f"{out}{err}"

    def launch_with_deaths(self, lines, *words, flags=()):
        """Launch a job; server 1 is killed at these lines of worker 0. Return its code and what it has printed."""
        end = self.new_path()
        launch = self.launch(TABLES, str(ROUNDS), *words, flags=flags, TABLES_END=end)
        server, printed = None, []
        left = list(lines)
        for line in launch.stdout:
            printed.append(line)
            started = re.fullmatch(r"\[server1\] server (\d+)\n", line)
            if started:
                server = int(started[1])
            if left and line == f"[worker0] {left[0]}\n":
                left.pop(0)
                os.kill(server, signal.SIGKILL)
                if not left:
                    self.make(end)
        _, err = launch.communicate()
        self.assertEqual(left, [])
        return launch.returncode, "".join(printed), err

    def test_a_launch_with_restarts(self):
        for lines in (["round 2"], ["round 1", "round 40"], ["pushed"], ["end"]):
            with self.subTest(lines):
                code, out, err = self.launch_with_deaths(lines, flags=["--restarts=9"])
                self.assertEqual(code, OK, (out, err))

    def test_a_launch_without_restarts_ends(self):
        code, _, err = self.launch_with_deaths(["round 2"])
        self.assertEqual(code, 128 + signal.SIGKILL, err)

    # ---- deaths that are errors

    def test_a_server_whose_place_is_not_taken(self):
        for program, line in ((TABLES, "round 5"), (TABLES, "pushed")):
            with self.subTest(line):
                job = self.job(program, "2000" if line != "pushed" else "9", "death", PHALANX_PS_RESTART_TIMEOUT="1")
                self.read_until(job["worker", 0], line)
                job["server", 1].kill()
                errors = [self.end(job[place], ABORTED)[1] for place in job if place != ("server", 1)]
                for err in errors:
                    self.assertIn("server 10 (rank 1) has died", err)
                self.assertIn(
                    "no process has taken its place within 1 s (PHALANX_PS_RESTART_TIMEOUT)", "".join(errors)
                )

    def fail_at(self, line, *words, **more):
        """Kill server 1 at this line of worker 0: at once that is an error of all others, which names it. Return their errors."""
        job = self.job(TABLES, "2000" if line.startswith("round") else "9", *words, **more)
        self.read_until(job["worker", 0], line)
        job["server", 1].kill()
        errors = {place: self.end(job[place], ABORTED)[1] for place in job if place != ("server", 1)}
        for err in errors.values():
            self.assertIn("server 10 (rank 1) has died", err)
        return errors

    def test_without_tables(self):
        self.check(TABLES, str(ROUNDS), PHALANX_PS_TABLES="0")
        self.fail_at("round 5", PHALANX_PS_TABLES="0", PHALANX_PS_RESTART_TIMEOUT="600")

    def test_a_function_of_the_program_beside_tables(self):
        self.check(TABLES, str(ROUNDS), "function")
        self.fail_at("round 5", "function", PHALANX_PS_RESTART_TIMEOUT="600")

    def test_servers_that_have_had_a_request_of_another_kind(self):
        self.check(TABLES, str(ROUNDS), "asks")
        job = self.job(TABLES, "2000", "asks", PHALANX_PS_RESTART_TIMEOUT="600")
        self.read_until(job["worker", 0], "round 5")
        job["server", 1].kill()
        # The workers have asked it; for the others these die then.
        for place, process in job.items():
            if place != ("server", 1):
                self.assertIn("has died", self.end(process, ABORTED)[1])

    def test_a_part_that_does_not_fit_into_the_store(self):
        # A worker that leaves asks for a snapshot, which is larger than the node.
        errors = self.check(TABLES, "2", "large", "leaves", PHALANX_CAPACITY="4MiB")
        self.assertIn("app 0: no snapshot of its values fits into the store", errors["server", 0])
        job = self.job(
            TABLES, "2", "large", "leaves", "death", PHALANX_CAPACITY="4MiB", PHALANX_PS_RESTART_TIMEOUT="600"
        )
        self.end(job.pop(("worker", 1)))
        self.read_until(job["worker", 0], "pushed")
        job.pop(("server", 1)).kill()
        for process in job.values():
            self.assertIn("server 10 (rank 1) has died", self.end(process, ABORTED)[1])

    def test_a_next_life_that_serves_nothing(self):
        job = self.job(TABLES, "2000")
        self.read_until(job["worker", 0], "round 5")
        job["server", 1].kill()
        job["server", 1].communicate()
        job["server", 1] = self.begin(self.variables("server", DMLC_RANK="1"), TABLES, "gone")
        self.end(job.pop(("server", 1)))
        errors = [self.end(process, ABORTED)[1] for process in job.values()]
        self.assertIn("server 10 (rank 1) has left, and requests for its values wait", "".join(errors))

    def test_servers_that_have_ended_when_a_request_comes(self):
        # They have set handles, so the apps have tables, but no process serves these.
        job = self.job(TABLES, str(ROUNDS), "before", "gone")
        for rank in range(2):
            self.end(job.pop(("server", rank)))
        errors = [self.end(process, ABORTED)[1] for process in job.values()]
        self.assertRegex("".join(errors), r"server \d+ \(rank \d\) has left, and requests for its values wait")

    def test_a_next_life_that_has_another_handle_before_start(self):
        job = self.job(TABLES, str(ROUNDS), PHALANX_PS_RESTART_TIMEOUT="600")
        self.read_until(job["worker", 0], "round 5")
        self.restart(job, 1, CASES, "table_other_handle")
        self.assertIn("app 1 has got another handle than", self.end(job.pop(("server", 1)), ABORTED)[1])
        # The others wait for a next life that is as the first one.
        job["server", 1] = self.begin(self.variables("server", DMLC_RANK="1"), TABLES, str(ROUNDS))
        self.end_all(job)

    def test_the_death_of_a_worker_is_an_error_of_all(self):
        job = self.job(CASES, "table_endless")
        for rank in range(2):
            self.assertEqual(job["worker", rank].stdout.readline(), "running\n")
        job["worker", 1].kill()
        for place, process in job.items():
            if place != ("worker", 1):
                self.assertIn("worker 11 (rank 1) has died", self.end(process, ABORTED)[1])


if __name__ == "__main__":
    unittest.main()
