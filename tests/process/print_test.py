"""What tasks print at their launch (`Membership::Print`): once, whole, without a prefix, whatever stands between."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from tests.process.harness import DEADLINE_S, ERROR, OK
from tests.process.launches import LaunchCase

MEMBER = os.path.abspath("tests/process/launch_member")
SMALL = {"PHALANX_CAPACITY": "64MiB"}


class PrintTest(LaunchCase):
    def members(self, *arguments, **settings):
        return self.launch(*arguments, variables=SMALL, **settings)

    def test_texts_come_once_as_they_are_without_the_name_of_the_task(self):
        out, err = self.members("--", MEMBER, "print:one", "print:", "print: two\n\nthree\n", "print:tab\tend")
        self.assertEqual((out, err), ("one\n two\n\nthree\ntab\tend\n", ""))

    def test_every_task_keeps_its_order_beside_the_others(self):
        # The second kind of output comes through pipes, into the same file.
        out, _ = self.members(
            "-n4", "--", "sh", "-c", '"$@"; for i in 1 2 3; do echo "line $i"; done', "sh", MEMBER, "count:5000",
            stderr=subprocess.STDOUT,
        )
        lines = out.splitlines()
        for i in range(4):
            printed = [line for line in lines if line.startswith(f"worker{i} ")]
            self.assertEqual(printed, [f"worker{i} {number}" for number in range(5000)])
            self.assertEqual([line for line in lines if line.startswith(f"[worker{i}] ")], [f"[worker{i}] line {n}" for n in (1, 2, 3)])

    def test_a_long_text_arrives_in_whole_lines(self):
        out, _ = self.members("-n3", "--no-prefix", "--", MEMBER, "lines:30000")
        lines = out.splitlines()
        self.assertEqual(len(lines), 90000)
        for i in range(3):
            printed = [line for line in lines if line.startswith(f"worker{i} ")]
            self.assertEqual(printed, [f"worker{i} {number}" for number in range(30000)])

    def test_a_shell_or_another_program_stands_between(self):
        for command in (
            ("sh", "-c", '("$@" < /dev/null) 2>&1 | cat', "sh", MEMBER, "print:here"),
            (sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)", MEMBER, "print:here"),
            ("setsid", "--wait", MEMBER, "print:here"),
        ):
            with self.subTest(command=command):
                out, err = self.members("--", *command)
                self.assertEqual((out, err), ("here\n", ""))

    def test_what_a_task_has_printed_before_its_death_comes_before_the_report(self):
        out, _ = self.members("--restarts=1", "--", MEMBER, "print:before", "kill", "print:after", stderr=subprocess.STDOUT)
        self.assertEqual(
            out.splitlines(),
            [
                "before",
                "phalanx launch: worker0 ended by signal 9 (Killed): starting it again (life 1, restarts left: 0)",
                "before",
                "after",
            ],
        )

    def test_the_last_words_of_a_launch_are_printed(self):
        out, err = self.members("-n2", "--", MEMBER, "count:200", "kill", expect=128 + signal.SIGKILL)
        self.assertIn("ended by signal 9", err)
        # The other task can have been stopped earlier.
        self.assertTrue(any(f"worker{i} 199" in out.splitlines() for i in range(2)), out)

    def test_tasks_wait_for_a_slow_reader(self):
        lines = 1_000_000
        launch = self.begin("-n2", "--", MEMBER, f"lines:{lines}", variables=SMALL, text=False)
        status = pathlib.Path(f"/proc/{launch.pid}/status")
        parts, most = [], 0
        while part := os.read(launch.stdout.fileno(), 1 << 16):
            parts.append(part)
            if len(parts) % 20 == 0:
                # Nothing can be read of a process that has just ended.
                held = re.search(r"RssAnon:\s+(\d+) kB", status.read_text())
                most = max(most, int(held[1]) if held else 0)
        self.assertEqual(launch.wait(DEADLINE_S), OK)
        out = b"".join(parts).decode().splitlines()
        for i in range(2):
            self.assertEqual([line for line in out if line.startswith(f"worker{i} ")], [f"worker{i} {n}" for n in range(lines)])
        # Of 28 MB that the tasks have printed, their launch has never held more than a few.
        self.assertGreater(most, 0)
        self.assertLess(most, 16 << 10)

    def test_a_launch_that_has_ended_is_an_error(self):
        out, _ = self.members("--", "sh", "-c", 'PHALANX_PRINT=/nonexistent/print "$@"', "sh", MEMBER, "print:late", expect=ERROR)
        self.assertIn("ERROR 14", out)
        self.assertIn("the launch has ended", out)

    def test_a_text_begins_its_own_line(self):
        out, _ = self.members("--no-prefix", "--restarts=1", "--", "sh", "-c", """
            [ $PHALANX_LIFE = 1 ] || { printf open; exit 1; }
            exec "$@"
        """, "sh", MEMBER, "print:text")
        self.assertEqual(out, "open\ntext\n")

    def test_the_socket_of_a_launch_is_removed(self):
        for end in ((), (signal.SIGTERM,)):
            with self.subTest(end=end):
                launch = self.begin("--", "sh", "-c", 'echo "$PHALANX_PRINT"; exec sleep 1000' if end else 'echo "$PHALANX_PRINT"',
                                    variables=SMALL)
                path = launch.stdout.readline().split()[-1]
                if end:
                    self.assertTrue(os.path.exists(path))
                    launch.send_signal(*end)
                launch.wait(DEADLINE_S)
                self.assertFalse(os.path.exists(os.path.dirname(path)))

    def test_without_a_launch_texts_go_to_the_own_output(self):
        out, _ = self.members("--", "sh", "-c", 'PHALANX_PRINT= "$@"', "sh", MEMBER, "print:one", "print:two\n")
        self.assertEqual(out, "[worker0] one\n[worker0] two\n")

    def test_an_output_that_is_full_is_an_error(self):
        self.members("--", "sh", "-c", 'PHALANX_PRINT= "$@" > /dev/full', "sh", MEMBER, "print:lost", expect=ERROR)

    def test_each_launch_prints_what_its_own_tasks_print(self):
        out, _ = self.members("--", sys.executable, "-c", """
import subprocess, sys
inner = subprocess.run(
    [sys.argv[1], "launch", "--", sys.argv[2], "print:inner"], stdout=subprocess.PIPE, text=True, check=True)
assert inner.stdout == "inner\\n", inner
subprocess.run([sys.argv[2], "print:outer"], check=True)
""", os.path.abspath("src/cli/phalanx"), MEMBER)
        self.assertEqual(out, "outer\n")


if __name__ == "__main__":
    unittest.main()
