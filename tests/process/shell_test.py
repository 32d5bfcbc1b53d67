"""Help, manual pages, completion, colours and errors of the command, and top on terminals of any size.

Completion is tested in every shell of bash, zsh and fish that is installed, and the pages by groff and, if it
is installed, mandoc."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from tests.process.harness import BINARY, DEADLINE_S, ID_A, NOT_FOUND, OK, TIMED_OUT, USAGE, ClusterTest, environment
from tests.process.terminal import Terminal

OPERATIONS = pathlib.Path("docs/operations.md")


def run(*arguments, expect=OK, **variables):
    command = subprocess.run(
        [BINARY, *arguments], env={**environment(), **variables}, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )
    assert command.returncode == expect, (arguments, command)
    return command.stdout if expect == OK else command.stderr


def complete(*words):
    """Return the completions of the last word."""
    return [line.split("\t")[0] for line in run("completion", "bash", "--", *words).splitlines()]


def flags_of(command):
    return {flag for flag in complete(command, "--") if flag.startswith("--")} - {"--help", "--version", "--config"}


COMMANDS = complete("")


class HelpTest(unittest.TestCase):
    def test_help_of_a_command_is_that_of_its_flag(self):
        self.assertEqual(run("help"), run("--help"))
        for command in COMMANDS:
            self.assertEqual(run("help", command), run(command, "--help"))
            self.assertIn(f"phalanx {command}", run("help", command))
        self.assertIn('"gte" is not one of', run("help", "gte", expect=USAGE))
        self.assertIn('did you mean "get"?', run("help", "gte", expect=USAGE))

    def test_usage_shows_which_arguments_repeat(self):
        self.assertIn("Usage: phalanx launch [OPTIONS] PROGRAM...\n", run("help", "launch"))
        self.assertIn("Usage: phalanx rm [OPTIONS] [ID...]\n", run("help", "rm"))
        self.assertIn("Usage: phalanx put [OPTIONS] FILE\n", run("help", "put"))

    def test_help_needs_no_configuration(self):
        for arguments in (["help", "put"], ["completion", "bash"], ["put", "--help"]):
            run(*arguments, PHALANX_CONFIG="/nonexistent.toml")

    def test_every_page_is_correct_and_names_each_flag(self):
        for command in ("", *COMMANDS):
            page = run("help", "--man", *filter(None, [command]))
            lint = subprocess.run(
                ["groff", "-man", "-ww", "-z", "-rCHECKSTYLE=3", "-Tutf8"], input=page, capture_output=True, text=True, check=True
            )
            self.assertEqual(lint.stderr, "", command)
            if shutil.which("mandoc"):
                # An unusual section or a missing date is no fault of a page that is made for its release.
                lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning"], input=page, capture_output=True, text=True, check=False)
                faults = [line for line in lint.stdout.splitlines() if "missing date" not in line]
                self.assertEqual(faults, [], command)
            text = subprocess.run(
                ["groff", "-man", "-Tascii", "-P-cbou", "-rLL=200n"], input=page, capture_output=True, text=True, check=True
            ).stdout
            for flag in flags_of(command) if command else {"--config"}:
                self.assertIn(flag, text)
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
                self.assertRegex(text, f"(?m)^{section}$")
        self.assertIn("PHALANX_STALL_TIMEOUT", run("help", "--man", "node"))

    def test_operations_md_has_every_flag_and_no_other(self):
        documented = {command: set() for command in COMMANDS}
        names = []
        for line in OPERATIONS.read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                names = [name.removeprefix("phalanx ") for name in re.findall("`([^`]*)`", line)]
            elif line.startswith("| `-"):
                flags = set(re.findall("`(--[a-z-]+)", line.split(" | ")[0]))
                for name in names:
                    self.assertFalse(documented[name] & flags, f"{name} has {flags} twice")
                    documented[name] |= flags
        for command in COMMANDS:
            self.assertEqual(documented[command], flags_of(command), command)

    def test_a_short_flag_has_one_meaning(self):
        meanings = {}
        for command in COMMANDS:
            for short, long in re.findall(r"^  (-[a-zA-Z]),(--[a-z-]+)", run("help", command), re.MULTILINE):
                meanings.setdefault(short, set()).add(long)
        self.assertEqual(meanings.pop("-f"), {"--force", "--follow"})  # as of rm(1) and of tail(1)
        self.assertEqual(meanings.pop("-n"), {"--name", "--tasks"})  # the latter as of mpirun(1)
        self.assertEqual(
            meanings,
            {
                "-a": {"--all"},
                "-h": {"--help"},
                "-o": {"--output"},
                "-q": {"--quiet"},
                "-r": {"--reverse"},
            },
        )


class CompletionTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(os.environ.get("TEST_TMPDIR", "/tmp"), f"shell-{self.id()}")
        self.folder.mkdir()
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "phalanx").symlink_to(os.path.abspath(BINARY))
        (self.folder / "weights of layer 1").touch()
        (self.folder / "layer:1.toml").touch()
        self.path = f"{self.folder}:{os.environ['PATH']}"

    def test_values_come_from_the_flags_themselves(self):
        self.assertEqual(complete("reduce", "--op", "bit-"), ["bit-and", "bit-or", "bit-xor"])
        self.assertEqual(complete("reduce", "--dtype=b"), ["--dtype=bf16"])
        self.assertEqual(complete("reduce", "--order", ""), ["arrival", "fixed"])
        self.assertEqual(complete("node", "--log-level", "w"), ["warning"])
        self.assertEqual(complete("put", ""), [":files"])
        self.assertEqual(complete("launch", "-n", "2", "--", "python3", "tra"), [":files"])
        self.assertEqual(complete("get", "-o", ""), [":files"])
        self.assertEqual(complete("bench", "put_"), ["put_turns", "put_get"])
        self.assertEqual(complete("help", "de"), ["describe"])
        self.assertEqual(complete("completion", "z"), ["zsh"])
        self.assertIn("--name", complete("get", ""))

    def test_every_command_and_flag_has_a_description_of_one_line(self):
        for words in ([""], ["--"], *([command, "--"] for command in COMMANDS)):
            for line in run("completion", "zsh", "--", *words).splitlines():
                self.assertRegex(line, r"^[a-z-]+\t\S", words)

    def open_shell(self, *command, **variables):
        terminal = Terminal(24, 200, command, PATH=self.path, HOME=str(self.folder), **variables)
        self.addCleanup(terminal.close)
        return terminal

    def assert_completes(self, terminal, typed, seen):
        """Type a line, and see it completed. Ctrl-U then clears it."""
        terminal.type(typed)
        terminal.read_until(lambda: any(seen in line for line in terminal.lines), f"{typed!r} to {seen!r}")
        terminal.type("\x15")

    def assert_shell_completes(self, terminal):
        self.assert_completes(terminal, "phalanx desc\t--foll\t", "phalanx describe --follow ")
        self.assert_completes(terminal, "phalanx reduce --op=bit-a\t", "phalanx reduce --op=bit-and")
        self.assert_completes(terminal, "phalanx reduce --dtype bf\t--num\t", "phalanx reduce --dtype bf16 --num-objects ")
        self.assert_completes(terminal, "phalanx put weig\t", "phalanx put weights\\ of\\ layer\\ 1")
        self.assert_completes(terminal, "phalanx get -o weig\t", "phalanx get -o weights\\ of\\ layer\\ 1")
        self.assert_completes(terminal, "phalanx --config=weig\t", "phalanx --config=weights\\ of\\ layer\\ 1")

    def test_bash_completes(self):
        terminal = self.open_shell("bash", "--norc", "--noprofile", "-i", PS1="$ ")
        terminal.type(f"cd '{self.folder}'; source <(phalanx completion bash)\n")
        self.assert_shell_completes(terminal)
        # The user chooses the characters at which bash splits words.
        for kept in "=", ":", "=:":
            terminal.type(f"OLD=$COMP_WORDBREAKS COMP_WORDBREAKS=${{COMP_WORDBREAKS//[{kept}]}}\n")
            self.assert_shell_completes(terminal)
            quoted = "layer:1.toml" if ":" in kept else "layer\\:1.toml"
            self.assert_completes(terminal, "phalanx --config=lay\t", f"phalanx --config={quoted}")
            terminal.type("COMP_WORDBREAKS=$OLD\n")
        self.assert_completes(terminal, "phalanx --config=layer:\t", "phalanx --config=layer:1.toml")
        self.assert_completes(terminal, "~/phalanx desc\t--foll\t", "~/phalanx describe --follow ")

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_completes(self):
        terminal = self.open_shell("zsh", "-f", "-i", PS1="$ ")
        terminal.type("autoload -U compinit; compinit -u -D; bindkey -e\n")
        terminal.type(f"cd '{self.folder}'; source <(phalanx completion zsh)\n")
        self.assert_shell_completes(terminal)
        self.assert_completes(terminal, "~/phalanx desc\t--foll\t", "~/phalanx describe --follow ")
        # Values have no descriptions, and keep their order.
        self.assert_completes(terminal, "phalanx reduce --op bit-\t", "bit-and  bit-or   bit-xor")
        self.assertFalse(any(line.rstrip().endswith("--") for line in terminal.lines), terminal.lines)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        def fish(line):
            script = f"cd '{self.folder}'; phalanx completion fish | source; complete -C '{line}'"
            answers = subprocess.run(
                ["fish", "--no-config", "-c", script], env={**environment(), "PATH": self.path, "HOME": str(self.folder)},
                capture_output=True, text=True, timeout=DEADLINE_S, check=True,
            )
            return [answer.split("\t")[0] for answer in answers.stdout.splitlines()]

        self.assertEqual(fish("phalanx desc"), ["describe"])
        self.assertEqual(fish("phalanx describe --foll"), ["--follow"])
        self.assertEqual(fish("phalanx reduce --op=bit-a"), ["--op=bit-and"])
        self.assertEqual(fish("phalanx reduce --op "), complete("reduce", "--op", ""))
        self.assertEqual(fish("~/phalanx desc"), ["describe"])
        self.assertEqual(fish("phalanx put weig"), ["weights of layer 1"])
        self.assertEqual(fish("phalanx put weights\\ of"), ["weights of layer 1"])
        self.assertEqual(fish('phalanx get --output="weights of'), ["--output=weights of layer 1"])
        self.assertEqual(fish("phalanx --config=weig"), ["--config=weights of layer 1"])


class ShellTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.start_shards(1)
        self.cluster.start_nodes(3)
        self.directory = f"--directory={self.cluster.directory}"

    def test_errors_are_json_with_json(self):
        error = json.loads(self.cluster.run("get", ID_A, "--json", "-o", "/dev/null", "--timeout=50ms", node="n0", expect=TIMED_OUT))
        self.assertIn(ID_A, error.pop("error"))
        self.assertEqual(error, {"command": "get", "code": "DEADLINE_EXCEEDED", "exit_code": TIMED_OUT})
        error = json.loads(self.cluster.run("describe", ID_A, "--json", self.directory, expect=NOT_FOUND))
        self.assertEqual((error["command"], error["code"], error["exit_code"]), ("describe", "NOT_FOUND", NOT_FOUND))
        for arguments in (["--frobnicate"], ["--timeout=x"], ["a", "b"]):
            error = json.loads(self.cluster.run("get", "--json", *arguments, expect=USAGE))
            self.assertEqual((error["command"], error["code"]), ("get", "INVALID_ARGUMENT"))
        error = self.cluster.run("describe", ID_A, self.directory, expect=NOT_FOUND)
        self.assertRegex(error, r"^phalanx describe: .* \(NOT_FOUND\)\n$")

    def on_terminal(self, *arguments, rows=24, columns=80, **variables):
        terminal = Terminal(rows, columns, [BINARY, *arguments, self.directory], **variables)
        self.addCleanup(terminal.close)
        return terminal

    def seen_of_status(self, **variables):
        terminal = self.on_terminal("status", columns=200, **variables)
        terminal.read_until(lambda: any(line.startswith("n2 ") for line in terminal.lines), "n2")
        return terminal.raw

    def test_colours_are_for_terminals_that_want_them(self):
        self.cluster.wait_for_nodes(3)
        self.assertIn("\x1b[32mup\x1b[0m", self.seen_of_status())
        self.assertNotIn("\x1b", self.seen_of_status(NO_COLOR="1"))
        self.assertNotIn("\x1b", self.seen_of_status(TERM="dumb"))
        self.assertIn("\x1b[32mup", self.seen_of_status(NO_COLOR=""))
        self.assertNotIn("\x1b", self.cluster.run("status", self.directory))

    def check_pane(self, terminal):
        """Check a pane of top in which each text has been drawn over the one before."""
        drawn = terminal.drawn
        terminal.read_until(lambda: terminal.drawn >= drawn + 3, "top")
        self.assertEqual((terminal.wrapped, terminal.scrolled), (0, 0), terminal.lines)
        self.assertTrue("1 of 1 shards up".startswith(terminal.lines[0][:16]), terminal.lines)
        self.assertEqual(sum(line.startswith("NODE") for line in terminal.lines), 1, terminal.lines)
        self.assertEqual(sum(line.startswith("n0") for line in terminal.lines), 1, terminal.lines)

    def test_top_fits_a_pane_of_any_size(self):
        self.cluster.wait_for_nodes(3)
        terminal = self.on_terminal("top", "--interval=20ms", rows=5, columns=20)
        self.check_pane(terminal)
        self.assertRegex(terminal.lines[1], "^NODE( +STATE)? +USED$")
        for rows, columns, heading in ((24, 80, "STATE"), (60, 200, "ADDRESS"), (3, 10, ""), (24, 80, "STATE"), (5, 20, "USED")):
            terminal.resize_to(rows, columns)
            # The first text at the new size replaces the whole screen.
            terminal.read_until(lambda: "\x1b[2J" in terminal.raw, "a clear screen")
            if rows == 3:
                terminal.read_until(lambda: terminal.drawn > 2, "a small text")
                self.assertEqual(terminal.scrolled, 0)
                continue
            self.check_pane(terminal)
            self.assertIn(heading, " ".join(terminal.lines))
            self.assertEqual(any("q: quit" in line for line in terminal.lines), rows > 20)
        terminal.type("q")
        self.assertEqual(terminal.process.wait(DEADLINE_S), 0)

    def order_of_nodes(self, terminal):
        return [line.split()[0] for line in terminal.lines if re.match("n[0-9]", line) and not line.startswith("n: ")]

    def test_top_sorts_by_flag_and_by_key(self):
        self.cluster.put("n1", self.cluster.make_file("small", 1 << 20), ID_A)
        self.cluster.put("n2", self.cluster.make_file("large", 3 << 20), "bb" * 20)
        self.cluster.wait_for_nodes(3)
        # An order of its own, not that of an earlier look, as soon as the nodes have reported their memory.
        self.cluster.follow(lambda look: all(node["used_bytes"] for node in look["nodes"][1:]), "status")
        once = self.cluster.run("top", "--once", "--sort-nodes=used", self.directory)
        self.assertEqual(re.findall("^n[0-9]", once, re.MULTILINE), ["n2", "n1", "n0"])
        terminal = self.on_terminal("top", "--interval=1h")
        terminal.read_until(lambda: any("nodes by name" in line for line in terminal.lines), "nodes by name")
        self.assertEqual(self.order_of_nodes(terminal), ["n0", "n1", "n2"])
        terminal.type("n")
        terminal.read_until(lambda: any("nodes by used" in line for line in terminal.lines), "nodes by used")
        self.assertEqual(self.order_of_nodes(terminal), ["n2", "n1", "n0"])
        terminal.type("t")
        terminal.read_until(lambda: any("transfers by size" in line for line in terminal.lines), "transfers by size")
        error = self.cluster.run("top", "--sort-nodes=usde", self.directory, expect=USAGE)
        self.assertIn('did you mean "used"?', error)


if __name__ == "__main__":
    unittest.main()
