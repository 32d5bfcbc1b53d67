"""`phalanx launch` with real processes: what its tasks get, how it ends, and what it leaves."""

import functools
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

from tests.process.harness import BINARY, DEADLINE_S, ERROR, OK, TIMED_OUT, UNAVAILABLE, USAGE, wait_for_end
from tests.process.launches import NO_CLUSTER, LaunchCase

PRINT_PLACE = 'echo "$PHALANX_TASK of $PHALANX_WORLD"'

# Prints lines of all lengths, in writes that do not end with them, on both streams.
WRITER = """
import os, sys
task = os.environ["PHALANX_TASK"]
for fd in 1, 2:
    text = b"".join(b"%s %d %d %s\\n" % (task.encode(), fd, i, b"x" * (i * 37 % 5000)) for i in range(400))
    for at in range(0, len(text), 7001):
        os.write(fd, text[at:at + 7001])
"""

# The first task writes until it has been blocked for half a second, and the second one then fails.
FLOOD = """
import os, select, sys
if os.environ["PHALANX_TASK"] == "worker0":
    os.set_blocking(1, False)
    while select.select([], [1], [], 0.5)[1]:
        os.write(1, b"x" * 4095 + b"\\n")
    open(sys.argv[1], "w").close()
elif os.environ["PHALANX_LIFE"] == "0":
    open(sys.argv[1]).close()
    sys.exit(3)
select.select([], [], [])
"""

# Writes until it has been blocked for half a second. The lines fill the pages of a pipe: no byte fits behind them.
FLOOD_ALONE = """
import os, select, sys
os.set_blocking(1, False)
while select.select([], [1], [], 0.5)[1]:
    os.write(1, b"x" * 4095 + b"\\n")
open(sys.argv[1], "w").close()
select.select([], [], [])
"""

# Each task writes numbered lines until it has been blocked for half a second, and a thousand more.
PAUSED = """
import itertools, os, select, sys
numbers = itertools.count()
def write():
    os.write(1, b"%d %s\\n" % (next(numbers), b"x" * 4000))
while select.select([], [1], [], 0.5)[1]:
    write()
print("blocked", file=sys.stderr, flush=True)
for _ in range(1000):
    write()
"""


def ends_of(pids):
    """Fail unless these processes, no children of ours, end."""
    for pid in pids:
        wait_for_end(int(pid))


class LaunchTest(LaunchCase):
    def shell(self, script, *flags, **settings):
        return self.launch(NO_CLUSTER, *flags, "--", "sh", "-c", script, **settings)

    def begin_shell(self, script, *flags, **settings):
        return self.begin(NO_CLUSTER, *flags, "--", "sh", "-c", script, **settings)

    def read_lines(self, launch, count):
        return [launch.stdout.readline().rstrip("\n") for _ in range(count)]

    # ---- declared deaths

    def test_a_declared_death_that_does_not_happen_fails_the_launch(self):
        _, err = self.shell("exit $(($PHALANX_FAIL - 5))", "--restarts=3", "--fail=0@5", expect=ERROR)
        self.assertIn(
            "phalanx launch: declared death 0@5 was not made: worker0 ended with exit code 0 in life 0 (ABORTED)", err
        )
        # A task that fails by itself has not died as declared, whatever restarts are left.
        _, err = self.shell("exit 3", "--restarts=3", "--fail=0@5", expect=ERROR)
        self.assertIn("declared death 0@5 was not made: worker0 ended with exit code 3 in life 0", err)

    def test_a_kill_by_something_else_is_no_declared_death(self):
        # As the kernel kills a task when memory is short.
        _, err = self.shell("kill -9 $$", "--restarts=3", "--fail=0@5", expect=ERROR)
        self.assertIn("declared death 0@5 was not made: worker0 ended by signal 9 (Killed) in life 0", err)

    def test_each_life_has_its_declared_death(self):
        # As the library does in that call.
        die = 'echo "$PHALANX_LIFE $$ $PHALANX_FAIL" > "$PHALANX_FAIL_MARK"; kill -9 $$'
        script = f'echo "life $PHALANX_LIFE: ${{PHALANX_FAIL:-none}}"; [ -z "$PHALANX_FAIL" ] || {{ {die}; }}'
        flags = ("--restarts=3", "--fail=0@57:entry", "--fail=0@3:put:100", "--fail=0@checkpoint", "--no-prefix")
        # An outer launch's declared death is not inherited.
        out, _ = self.shell(script, *flags, variables={"PHALANX_FAIL": "9"})
        self.assertEqual(out.splitlines(), ["life 0: 57", "life 1: 3:put:100", "life 2: checkpoint:1", "life 3: none"])

    def test_a_death_at_another_point_is_not_the_declared_one(self):
        script = 'echo "0 $$ 6" > "$PHALANX_FAIL_MARK"; kill -9 $$'
        _, err = self.shell(script, "--restarts=3", "--fail=0@5", expect=ERROR)
        self.assertIn("declared death 0@5 was not made: worker0 ended by signal 9 (Killed) (6) in life 0", err)

    def test_a_death_of_another_process_is_not_that_of_the_task(self):
        # A child that the task has forked, and one that an earlier life has left.
        for mark in ("0 1 5", "1 $$ 5"):
            with self.subTest(mark=mark):
                script = f'echo "{mark}" > "$PHALANX_FAIL_MARK"; kill -9 $$'
                _, err = self.shell(script, "--restarts=3", "--fail=0@5", expect=ERROR)
                self.assertIn("declared death 0@5 was not made: worker0 ended by signal 9 (Killed) in life 0", err)
        # A shell that waits for the process ends as that does.
        script = 'sh -c \'[ $PHALANX_LIFE = 1 ] || { echo "0 $$ 5" > "$PHALANX_FAIL_MARK"; kill -9 $$; }\' || exit $?'
        self.shell(script, "--restarts=3", "--fail=0@5")

    def test_words_declare_deaths_of_workers_alone(self):
        arguments = (NO_CLUSTER, "--role=ps", "--", "sh", "-c", "exit 0", "sh", "mock=0,0,0,0")
        self.assertEqual(self.launch(*arguments), ("", ""))

    def test_unfired_deaths_are_only_reported_if_that_is_wanted(self):
        # The first life misses its death and fails; the second one makes its own; the third one ends.
        script = """
            case $PHALANX_LIFE in
                0) exit 3 ;;
                1) echo $PHALANX_LIFE $$ $PHALANX_FAIL > $PHALANX_FAIL_MARK; kill -9 $$ ;;
            esac
        """
        flags = ("-n2", "--restarts=4", "--fail=0@5", "--fail=0@load", "--fail=1@6", "--fail=1@7", "--fail=1@8", "--fail=1@9")
        _, err = self.shell(script, *flags, "--unfired=warn")
        self.assertEqual(
            [line for line in err.splitlines() if "starting it again" not in line],
            [
                "phalanx launch: declared death 0@5 was not made: worker0 ended with exit code 3 in life 0",
                "phalanx launch: declared death 1@6 was not made: worker1 ended with exit code 3 in life 0",
                "phalanx launch: declared death 1@8 was not made: worker1 ended with exit code 0 in life 2",
                "phalanx launch: declared death 1@9 was not made: worker1 has not had life 3",
            ],
        )
        # A task's own failure is the exit code.
        _, err = self.shell("exit 7", "--fail=0@5", "--unfired=warn", expect=7)
        self.assertNotIn("declared", err)

    def test_words_of_rabit_declare_deaths(self):
        # Its list for ten ranks, of which two can never die there: a life has one death.
        words = [f"mock={each}" for each in "0,0,1,0 1,1,1,0 1,1,1,1 0,1,1,0 4,1,1,0 9,1,1,0 8,1,2,0 4,1,3,0".split()]
        script = """
            for word in "$@"; do
                case $word in
                    mock=$DMLC_TASK_ID,*,$DMLC_NUM_ATTEMPT) echo $DMLC_NUM_ATTEMPT $$ $word > $PHALANX_FAIL_MARK; kill -9 $$ ;;
                esac
            done
        """
        arguments = (NO_CLUSTER, "-n10", "--restarts=20")
        command = ("--", "sh", "-c", script, "sh", "10000", *words)
        lines = [
            f"phalanx launch: declared death mock={word} was not made: worker{task} ended by signal 9 (Killed) (mock={made}) in life 0"
            for word, task, made in (("0,1,1,0", 0, "0,0,1,0"), ("4,1,3,0", 4, "4,1,1,0"))
        ]
        _, err = self.launch(*arguments, *command, expect=ERROR)
        report = [line for line in err.splitlines() if "starting it again" not in line]
        self.assertEqual(report, [*lines, "phalanx launch: 2 declared deaths were not made (ABORTED)"])
        _, err = self.launch(*arguments, "--unfired=warn", *command)
        self.assertEqual([line for line in err.splitlines() if "starting it again" not in line], lines)
        self.assertEqual(err.count("starting it again"), 6)
        # Those that were made are no failure, and need restarts.
        self.launch(*arguments, *command[:5], *words[:3])
        self.launch(NO_CLUSTER, "-n10", *command[:5], words[0], expect=128 + signal.SIGKILL)

    def test_a_rank_that_is_in_no_launch_dies_in_none(self):
        for first, expect in ((0, ERROR), (2, OK)):
            _, err = self.launch(
                NO_CLUSTER, "-n2", "--world=4", f"--first={first}", "--job=j", "--", "true", "mock=7,0,0,0", expect=expect
            )
            self.assertEqual("declared death mock=7,0,0,0 was not made: there is no worker7" in err, expect != OK)
        _, err = self.launch(
            NO_CLUSTER, "-n2", "--world=4", "--first=2", "--job=j", "--", "true", "mock=3,0,0,0", "mock=1,0,0,0", expect=ERROR
        )
        self.assertIn("declared death mock=3,0,0,0 was not made: worker3 ended with exit code 0 in life 0", err)
        self.assertNotIn("mock=1,0,0,0", err)

    def test_wrong_declared_deaths_are_refused(self):
        forms = "expected TASK@POINT like 3@57 or worker3@57, where POINT is CALL, CALL:entry, CALL:put:BYTES, load, checkpoint"
        for text, why in (("3", forms), ("0@save", forms), ("0@5:put", forms), ("1@5", "there is no worker1 in a world of 1")):
            _, err = self.shell("true", f"--fail={text}", expect=USAGE)
            self.assertIn(why, err)
        _, err = self.shell("true", "--unfired=no", expect=USAGE)
        self.assertIn("fail|warn", err)

    # ---- what a task gets

    def test_tasks_know_their_place(self):
        script = 'echo "$PHALANX_JOB $PHALANX_TASK $PHALANX_ROLE $PHALANX_WORLD $PHALANX_LIFE $PHALANX_ADDRESS ${PHALANX_RANK-none}"'
        out, err = self.shell(script, "-n3", "--job=j", "--role=ps", "--no-prefix", variables={"PHALANX_LIFE": "9"})
        self.assertEqual(
            sorted(out.splitlines()), [f"j ps{i} ps 3 0 unix:/nonexistent none" for i in range(3)]
        )
        self.assertEqual(err, "")

    def test_tasks_have_the_variables_of_rabit(self):
        outer = {"DMLC_TASK_ID": "9", "DMLC_ROLE": "server", "DMLC_TRACKER_URI": "10.0.0.1", "DMLC_TRACKER_PORT": "9091"}
        script = "env | grep ^DMLC_ | sort; [ $PHALANX_LIFE = 1 ]"
        flags = ("-n1", "--world=4", "--first=2", "--job=j", "--restarts=1", "--no-prefix")
        out, _ = self.shell(script, *flags, variables=outer)
        lives = [
            f"DMLC_NUM_ATTEMPT={life} DMLC_NUM_SERVER=0 DMLC_NUM_WORKER=4 DMLC_ROLE=worker DMLC_TASK_ID=2" for life in (0, 1)
        ]
        self.assertEqual(" ".join(out.split()), " ".join(lives))
        out, _ = self.shell("echo ${DMLC_ROLE-none}", "--role=ps", "--no-prefix", variables=outer)
        self.assertEqual(out, "none\n")

    def test_a_job_without_a_name_gets_a_new_one(self):
        names = set()
        for _ in range(2):
            out, _ = self.shell("echo $PHALANX_JOB", "-n2", "--no-prefix")
            (name,) = set(out.split())
            self.assertRegex(name, "^job-[0-9a-f]{16}$")
            names.add(name)
        self.assertEqual(len(names), 2)

    def test_arguments_are_passed_as_they_are(self):
        arguments = ["[1,2]", "", "--", "--json", "-n", "a  b", "--x=", "get", "[]"]
        out, _ = self.launch(NO_CLUSTER, "--no-prefix", "--", "printf", "%s\\n", *arguments)
        self.assertEqual(out.split("\n"), [*arguments, ""])

    def test_the_input_of_tasks_is_empty(self):
        reader, writer = os.pipe()  # nobody writes, and nobody closes
        self.addCleanup(os.close, writer)
        self.addCleanup(os.close, reader)
        out, _ = self.shell("cat; echo end", stdin=reader)
        self.assertEqual(out, "[worker0] end\n")

    def test_closed_descriptors_of_the_launch_are_dev_null(self):
        def close_all():
            for fd in range(3):
                os.close(fd)

        path = pathlib.Path(self.cluster.path("seen"))
        script = f'readlink /proc/$$/fd/0 > {path}; echo out; echo err >&2 && echo written >> {path}'
        self.shell(script, preexec_fn=close_all)
        self.assertEqual(path.read_text(), "/dev/null\nwritten\n")

    def test_tasks_share_a_private_cluster(self):
        script = """
            if [ $PHALANX_TASK = worker0 ]; then echo hello | "$0" put - --name greeting -q > /dev/null
            else "$0" get --name greeting --timeout 60s; fi
        """
        out, err = self.launch("-n2", "--", "sh", "-c", script, BINARY, variables={"PHALANX_CAPACITY": "64MiB"})
        self.assertEqual((out, err), ("[worker1] hello\n", ""))
        self.assertEqual([path for path in os.listdir(self.cluster.folder) if path.startswith("phalanx")], [])

    def test_launches_on_several_nodes_make_one_job(self):
        self.cluster.start_shards()
        self.cluster.start_nodes(2)
        # Each task gets what the next one puts.
        script = """
            i=${PHALANX_TASK#worker}
            echo $i | "$0" put - --name $PHALANX_JOB/$i -q > /dev/null
            "$0" get --name $PHALANX_JOB/$(((i + 1) % PHALANX_WORLD)) --timeout 60s
        """
        launches = [
            self.begin("-n2", "--world=4", f"--first={first}", "--job=ring", "--", "sh", "-c", script, BINARY,
                       variables={"PHALANX_ADDRESS": node.client_address})
            for first, node in zip((0, 2), self.cluster.nodes.values())
        ]
        lines = []
        for launch in launches:
            out, err = launch.communicate(timeout=DEADLINE_S)
            self.assertEqual((launch.returncode, err), (OK, ""))
            lines += out.splitlines()
        self.assertEqual(sorted(lines), [f"[worker{i}] {(i + 1) % 4}" for i in range(4)])

    def test_schedulers_say_which_tasks_are_here(self):
        for variables, flags, first, world in (
            ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2"}, [], 4, 6),
            ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2"}, ["--first=1"], 1, 6),
            ({"SLURM_NTASKS": "3", "SLURM_PROCID": "0"}, [], 0, 2),
            ({"JOB_COMPLETION_INDEX": "1"}, ["--world=8"], 2, 8),
        ):
            with self.subTest(variables=variables):
                out, _ = self.shell(PRINT_PLACE, "-n2", "--no-prefix", "--job=j", *flags, variables=variables)
                self.assertEqual(sorted(out.splitlines()), [f"worker{first + i} of {world}" for i in range(2)])

    # ---- output

    def test_whole_lines_of_every_task_arrive_in_order(self):
        for flags, tasks in ((["-n8"], 8), (["-n8", "--no-prefix"], 8)):
            out, err = self.launch(NO_CLUSTER, *flags, "--", sys.executable, "-c", WRITER)
            for fd, text in ((1, out), (2, err)):
                self.check_lines(text, tasks, (fd,), prefix="--no-prefix" not in flags)

    def test_lines_stay_whole_if_both_streams_are_one(self):
        out, _ = self.launch(NO_CLUSTER, "-n8", "--", sys.executable, "-c", WRITER, stderr=subprocess.STDOUT)
        self.check_lines(out, 8, (1, 2), prefix=True)

    def check_lines(self, text, tasks, fds, prefix):
        lines = {(f"worker{i}", fd): [] for i in range(tasks) for fd in fds}
        for line in text.splitlines():
            name = re.match(r"\[(\w+)\] ", line) if prefix else None
            task, fd, index, rest = line[name.end() if name else 0:].split(" ")
            self.assertEqual(name[1] if prefix else task, task, line)
            self.assertEqual(rest, "x" * (int(index) * 37 % 5000))
            lines[task, int(fd)].append(int(index))
        for key, seen in lines.items():
            self.assertEqual(seen, list(range(400)), key)

    def test_the_end_of_the_output_arrives_without_a_newline(self):
        out, err = self.shell("printf 'a\\nb'; printf c >&2")
        self.assertEqual((out, err), ("[worker0] a\n[worker0] b\n", "[worker0] c\n"))
        out, err = self.shell("printf 'a\\nb'; printf c >&2", "--no-prefix")
        self.assertEqual((out, err), ("a\nb", "c"))

    def test_output_goes_to_files(self):
        path = pathlib.Path(self.cluster.path("out"))
        with open(path, "wb") as file:
            self.launch(NO_CLUSTER, "-n8", "--", sys.executable, "-c", WRITER, stdout=file, stderr=file)
        self.check_lines(path.read_text(), 8, (1, 2), prefix=True)

    def test_the_output_of_a_process_that_outlives_its_task_is_not_waited_for(self):
        fifo = self.fifo()
        away = f"echo $$; echo > {fifo}; exec sleep 600"
        out, _ = self.shell(f"setsid sh -c '{away}' & read line < {fifo}; printf end")
        pid, end = (line.removeprefix("[worker0] ") for line in out.splitlines())
        os.kill(int(pid), signal.SIGKILL)  # beyond the reach of the launch
        self.assertEqual(end, "end")

    def test_a_launch_whose_reader_is_gone_ends_as_cat_does(self):
        launch = self.begin_shell("echo $$; exec yes", "-n2", "--no-prefix")
        pids = [line for line in self.read_lines(launch, 10) if line != "y"]
        launch.stdout.close()
        self.assertEqual(launch.wait(DEADLINE_S), -signal.SIGPIPE)
        ends_of(pids)

    def test_a_reader_that_does_not_read_delays_neither_restarts_nor_the_end(self):
        launch = self.begin(
            NO_CLUSTER, "-n2", "--restarts=1", "--grace=100ms", "--", sys.executable, "-c", FLOOD, self.fifo()
        )
        self.assertIn("worker1 ended with exit code 3: starting it again", launch.stderr.readline())
        launch.send_signal(signal.SIGTERM)
        self.assertEqual(launch.wait(DEADLINE_S), 128 + signal.SIGTERM)

    def test_a_reader_that_does_not_read_errors_either_does_not_delay_the_end(self):
        for name, make in (("pipe", os.pipe), ("terminal", pty.openpty)):
            with self.subTest(name):
                reader, writer = make()
                self.addCleanup(os.close, reader)
                fifo = self.fifo(name)
                launch = self.begin(
                    NO_CLUSTER, "--no-prefix", "--grace=100ms", "--", sys.executable, "-c", FLOOD_ALONE, fifo,
                    stdout=writer, stderr=writer,
                )
                os.close(writer)
                open(fifo).close()
                launch.send_signal(signal.SIGTERM)
                self.assertEqual(launch.wait(DEADLINE_S), 128 + signal.SIGTERM)

    def test_a_task_that_fails_again_and_again_waits_for_room(self):
        errors = pathlib.Path(self.cluster.path("errors"))
        with open(errors, "wb") as file:
            launch = self.begin_shell(
                "echo; head -c 60000 /dev/zero; echo; exit 9", "--restarts=100", "--no-prefix", stderr=file
            )
        children = pathlib.Path(f"/proc/{launch.pid}/task/{launch.pid}/children")
        end = time.monotonic() + DEADLINE_S
        looks = 0
        restarts = 0
        while looks < 1000:  # some looks can come between two lives
            self.assertLess(time.monotonic(), end)
            restarts = errors.read_text().count("starting it again")
            looks = looks + 1 if restarts > 10 and not children.read_text() else 0
        self.assertLess(restarts, 40)
        out, _ = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual(launch.returncode, 9)
        self.assertEqual(len(out), 101 * 60002)

    def test_no_task_starts_after_the_report_of_its_restart_has_found_no_reader(self):
        reader, writer = os.pipe()
        os.close(reader)
        seen = pathlib.Path(self.cluster.path("seen"))
        launch = self.begin_shell(
            f"[ $PHALANX_LIFE = 1 ] || exit 3; touch {seen}", "--restarts=1", stdout=writer, stderr=writer
        )
        os.close(writer)
        self.assertEqual(launch.wait(DEADLINE_S), -signal.SIGPIPE)
        self.assertFalse(seen.exists())

    def test_tasks_share_a_slow_reader(self):
        launch = self.begin(
            NO_CLUSTER, "-n4", "--no-prefix", "--", "sh", "-c", 'exec yes "$PHALANX_TASK $0"', "x" * 1000, text=False
        )
        counts = {f"worker{i}".encode(): 0 for i in range(4)}
        for _ in range(20000):
            counts[launch.stdout.readline().split()[0]] += 1
        self.assertGreater(min(counts.values()), 2000, counts)

    def test_a_reader_that_pauses_gets_everything(self):
        launch = self.begin(NO_CLUSTER, "-n2", "--", sys.executable, "-c", PAUSED)
        for _ in range(2):
            self.assertIn("blocked", launch.stderr.readline())
        out, err = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual((launch.returncode, err), (OK, ""))
        for task in ("worker0", "worker1"):
            numbers = [int(line.split()[1]) for line in out.splitlines() if line.startswith(f"[{task}] ")]
            self.assertEqual(numbers, list(range(len(numbers))), task)
            self.assertGreater(len(numbers), 1000)

    # ---- failures

    def test_failed_tasks_are_started_again_in_their_next_life(self):
        out, err = self.shell("echo life $PHALANX_LIFE; [ $PHALANX_LIFE = 2 ] || exit 5", "--restarts=3")
        self.assertEqual(out.splitlines(), [f"[worker0] life {i}" for i in range(3)])
        self.assertEqual(
            err.splitlines(),
            [
                "phalanx launch: worker0 ended with exit code 5: starting it again (life 1, restarts left: 2)",
                "phalanx launch: worker0 ended with exit code 5: starting it again (life 2, restarts left: 1)",
            ],
        )

    def test_a_killed_task_is_started_again_and_one_that_is_done_is_not(self):
        script = "echo $PHALANX_TASK $PHALANX_LIFE; [ $PHALANX_TASK$PHALANX_LIFE != worker10 ] || kill -9 $$"
        out, err = self.shell(script, "-n2", "--restarts=1", "--no-prefix")
        self.assertEqual(sorted(out.splitlines()), ["worker0 0", "worker1 0", "worker1 1"])
        self.assertIn("worker1 ended by signal 9 (Killed)", err)

    def test_the_launch_exits_as_the_task_that_has_no_restart_left(self):
        _, err = self.shell("exit $((7 + PHALANX_LIFE))", "--restarts=2", expect=9)
        self.assertIn("phalanx launch: worker0 ended with exit code 9 (ABORTED)", err)
        _, err = self.shell("kill -9 $$", expect=128 + signal.SIGKILL)
        self.assertIn("worker0 ended by signal 9 (Killed)", err)
        _, err = self.shell("exit 150", expect=150)
        self.assertIn("worker0 ended with exit code 150", err)

    def test_no_task_is_started_again_without_the_private_cluster(self):
        fifo = self.fifo()
        script = f"echo $$; [ $PHALANX_LIFE = 1 ] || read line < {fifo}; exit 7"
        launch = self.begin(
            "--restarts=1", "--no-prefix", "--", "sh", "-c", script, variables={"PHALANX_CAPACITY": "64MiB"}
        )
        (task,) = self.read_lines(launch, 1)
        children = pathlib.Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()
        (daemon,) = set(children) - {task}
        os.kill(int(daemon), signal.SIGKILL)
        wait_for_end(int(daemon))
        pathlib.Path(fifo).write_text("\n")
        out, err = launch.communicate(timeout=DEADLINE_S)
        self.assertEqual((out, launch.returncode), ("", UNAVAILABLE))
        self.assertIn("the private cluster has ended", err)

    def test_a_failure_stops_the_other_tasks(self):
        fifo = self.fifo()
        script = f"""
            if [ $PHALANX_TASK = worker0 ]; then
                for _ in 1 2; do read pid; echo $pid; done < {fifo}
                exit 7
            fi
            exec 3> {fifo}
            trap 'echo bye; exit 0' TERM
            echo $$ >&3
            sleep 600 & wait
        """
        out, err = self.shell(script, "-n3", "--no-prefix", expect=7)
        lines = out.splitlines()
        self.assertEqual(lines.count("bye"), 2)
        ends_of(line for line in lines if line != "bye")
        self.assertIn("worker0 ended with exit code 7", err)

    def test_tasks_that_ignore_the_stop_are_killed_after_the_grace(self):
        fifo = self.fifo()
        script = f"""
            if [ $PHALANX_TASK = worker0 ]; then read pid < {fifo}; echo $pid; exit 7; fi
            trap '' TERM
            echo $$ > {fifo}
            while :; do sleep 600; done
        """
        out, _ = self.shell(script, "-n2", "--no-prefix", "--grace=100ms", expect=7)
        ends_of(out.split())

    def test_a_timeout_stops_the_tasks(self):
        _, err = self.shell("exec sleep 600", "-n2", "--timeout=100ms", expect=TIMED_OUT)
        self.assertIn("have not ended within --timeout=100ms", err)

    def test_a_timeout_ends_the_wait_for_a_reader(self):
        launches = [
            (self.begin_shell(f"head -c 500000 /dev/zero; exit {code}", "--timeout=5s", "--grace=10ms"), expect, text)
            for code, expect, text in (
                (7, 7, "ended with exit code 7"), (0, TIMED_OUT, "the output was not read within --timeout=5s"),
            )
        ]
        for launch, expect, text in launches:
            self.assertEqual(launch.wait(DEADLINE_S), expect)
            self.assertIn(text, launch.stderr.read())

    def test_a_task_takes_its_processes_with_it(self):
        out, _ = self.shell("sleep 600 & echo $!", "-n2", "--no-prefix")
        self.assertEqual(len(out.split()), 2)
        ends_of(out.split())

    # ---- the end of the launch

    def test_signals_are_passed_on(self):
        for word in ("INT", "TERM", "HUP", "QUIT"):
            number = getattr(signal, "SIG" + word)
            launch = self.begin_shell(
                f"trap 'echo got {word}; exit 0' {word}; echo ready; sleep 600 & wait", "-n2", "--restarts=5", "--no-prefix"
            )
            self.assertEqual(self.read_lines(launch, 2), ["ready", "ready"])
            launch.send_signal(number)
            out, err = launch.communicate(timeout=DEADLINE_S)
            self.assertEqual((out, launch.returncode), (f"got {word}\n" * 2, 128 + number))
            self.assertIn(f"ended by signal {int(number)}", err)

    def test_stopped_tasks_continue_to_end(self):
        launch = self.begin_shell("trap 'echo got; exit 0' TERM; echo $$; kill -STOP $$; sleep 600 & wait", "--grace=1h", "--no-prefix")
        (pid,) = self.read_lines(launch, 1)
        while pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "T":
            pass
        launch.send_signal(signal.SIGTERM)
        self.assertEqual(launch.communicate(timeout=DEADLINE_S)[0], "got\n")

    def test_tasks_act_on_an_interrupt_that_the_launch_was_started_to_ignore(self):
        ignore = functools.partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # as in `phalanx launch ... &`
        launch = self.begin_shell("trap 'echo got; exit 0' INT; echo ready; sleep 600 & wait", "--no-prefix", preexec_fn=ignore)
        self.read_lines(launch, 1)
        launch.send_signal(signal.SIGINT)
        self.assertEqual(launch.communicate(timeout=DEADLINE_S)[0], "got\n")
        self.assertEqual(launch.returncode, 128 + signal.SIGINT)

    def test_the_first_signal_after_a_failure_leaves_the_tasks_their_time(self):
        fifo = self.fifo()
        script = f"""
            if [ $PHALANX_TASK = worker0 ]; then read pid < {fifo}; exit 7; fi
            trap 'echo stopping; read line < {fifo}; echo bye; exit 0' TERM
            echo $$ > {fifo}
            sleep 600 & wait
        """
        launch = self.begin_shell(script, "-n2", "--grace=1h", "--no-prefix")
        self.assertEqual(self.read_lines(launch, 1), ["stopping"])
        launch.send_signal(signal.SIGTERM)
        status = pathlib.Path(f"/proc/{launch.pid}/status")
        while re.search(r"ShdPnd:\t0*[1-9a-f]", status.read_text()):  # until the launch has read the signal
            pass
        ours = os.open(fifo, os.O_RDWR)  # without a reader too, which would have been killed
        self.addCleanup(os.close, ours)
        os.write(ours, b"\n")
        self.assertEqual(launch.communicate(timeout=DEADLINE_S)[0], "bye\n")
        self.assertEqual(launch.returncode, 7)

    def test_a_second_signal_kills_at_once(self):
        launch = self.begin_shell("trap 'echo got' INT; echo $$; while :; do sleep 600 & wait; done", "--grace=1h", "--no-prefix")
        pids = self.read_lines(launch, 1)
        launch.send_signal(signal.SIGINT)
        self.assertEqual(self.read_lines(launch, 1), ["got"])
        launch.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(DEADLINE_S), 128 + signal.SIGINT)
        ends_of(pids)

    def test_user_signals_are_passed_on_and_stop_nothing(self):
        launch = self.begin_shell(
            "trap 'echo got 1' USR1; trap 'echo got 2' USR2; echo ready; while :; do sleep 600 & wait; done", "--no-prefix"
        )
        self.assertEqual(self.read_lines(launch, 1), ["ready"])
        for number, line in ((signal.SIGUSR1, "got 1"), (signal.SIGUSR2, "got 2"), (signal.SIGUSR1, "got 1")):
            launch.send_signal(number)
            self.assertEqual(self.read_lines(launch, 1), [line])
        launch.send_signal(signal.SIGTERM)
        self.assertEqual(launch.wait(DEADLINE_S), 128 + signal.SIGTERM)

    def test_an_ignored_hangup_is_not_passed_on(self):
        ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
        launch = self.begin_shell("echo ready; sleep 600 & wait", preexec_fn=ignore)
        self.read_lines(launch, 1)
        launch.send_signal(signal.SIGHUP)
        launch.send_signal(signal.SIGTERM)
        self.assertEqual(launch.wait(DEADLINE_S), 128 + signal.SIGTERM)

    def test_exit_codes_are_seen_if_the_parent_ignores_its_children(self):
        ignore = functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
        self.shell("exit 6", expect=6, preexec_fn=ignore)

    def test_a_killed_launch_leaves_no_task_and_no_daemon(self):
        launch = self.begin(
            "-n4", "--no-prefix", "--", "sh", "-c", "trap '' TERM HUP; echo $$; while :; do read x; done < $0", self.fifo(),
            variables={"PHALANX_CAPACITY": "64MiB"},
        )
        tasks = self.read_lines(launch, 4)
        children = pathlib.Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()
        self.assertEqual(len(children), 5)
        self.assertLess(set(tasks), set(children))
        launch.kill()
        ends_of(children)

    # ---- bad input

    def test_wrong_arguments_are_usage_errors(self):
        for flags, text in (
            (["-n0"], '--tasks: "0" is not a whole number from 1 to'),
            (["--tasks=-1"], '"-1" is not a whole number from 1 to'),
            (["--tasks=x"], '"x" is not a whole number'),
            (["--restarts=-1"], "--restarts"),
            (["--role="], "--role= has no value"),
            (["--role", ""], "--role is empty"),
            (["--first=1"], "is beyond --world=1"),
            (["--world=0"], "--world"),
            (["-n4", "--world=8", "--first=5", "--job=j"], "task 8 (--first=5 --tasks=4) is beyond --world=8"),
            (["--world=2"], "--first is required with --world=2"),
            (["--world=2", "--first=0"], "the same --job"),
        ):
            _, err = self.shell("true", *flags, expect=USAGE)
            self.assertIn(text, err)
        _, err = self.launch("--world=2", "--first=0", "--job=j", "--", "true", expect=USAGE)
        self.assertIn("set --address or PHALANX_ADDRESS", err)
        for nothing in ([], ["--"], ["-n2", "--"]):
            _, err = self.launch(*nothing, expect=USAGE)
            self.assertIn("PROGRAM is required", err)
        _, err = self.launch("sh", "-c", "true", expect=USAGE)
        self.assertIn("there is no flag -c", err)
        _, err = self.shell("true", expect=USAGE, variables={"JOB_COMPLETION_INDEX": "1"})
        self.assertIn("--world is required with JOB_COMPLETION_INDEX", err)
        _, err = self.shell("true", expect=USAGE, variables={"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "x"})
        self.assertIn('SLURM_PROCID is "x"', err)

    def test_a_program_that_cannot_run_is_named(self):
        _, err = self.launch(NO_CLUSTER, "-n3", "--restarts=9", "--", "no-such-program", expect=127)
        self.assertEqual(err, "phalanx launch: cannot run no-such-program: No such file or directory (NOT_FOUND)\n")
        path = self.cluster.make_file("file", 10)
        os.chmod(path, 0o644)
        _, err = self.launch(NO_CLUSTER, "--", path, expect=126)
        self.assertIn(f"cannot run {path}: Permission denied", err)

    def test_a_lack_of_descriptors_is_no_fault_of_the_program(self):
        codes = set()
        for limit in range(10, 25):
            few = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (limit, limit))
            launch = self.begin_shell("true", preexec_fn=few)
            _, err = launch.communicate(timeout=DEADLINE_S)
            codes.add(launch.returncode)
            self.assertEqual("Too many open files" in err, launch.returncode != OK, err)
        self.assertLessEqual({OK, ERROR}, codes)
        self.assertLessEqual(codes, {OK, ERROR, UNAVAILABLE})


if __name__ == "__main__":
    unittest.main()
