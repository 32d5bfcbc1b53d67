"""Programs for Rabit as ranks of a launch: their results, their deaths by `mock=`, and what is refused. The lists of deaths
are those of Rabit's own tests; each of them has one or two that can never come, for a rank that has died before."""

import collections
import os
import re
import subprocess
import unittest

from tests.process.harness import DEADLINE_S, OK, environment
from tests.process.launches import LaunchCase

PROGRAMS = os.path.abspath("src/rabit/testing")
CALLS, RECOVER, C_API = (f"{PROGRAMS}/{name}" for name in ("calls", "recover", "c_api_test"))
LIBRARY = {"PHALANX_LIBRARY": os.environ.get("PHALANX_LIBRARY", os.path.abspath("src/client/sdk/libphalanx.so")),
           "PHALANX_CAPACITY": "256MiB"}
# rabit::utils::Error.
REFUSED = 255
# A death without a launch.
DIED = 254

WORLD = 10
COUNT = 10_000
ITERATIONS = 3
DEATHS = ("0,0,1,0", "1,1,1,0")
DIE_SAME = (*DEATHS, "0,1,1,0", "4,1,1,0", "9,1,1,0")
DIE_HARD = ("0,0,1,0", "1,1,1,0", "1,1,1,1", "0,1,1,0", "4,1,1,0", "9,1,1,0", "8,1,2,0", "4,1,3,0")
LOCAL = (*DIE_SAME, "1,1,1,1")
LINE = re.compile(r"(?:\[worker\d+\] )?\[(\d+)\] (.*)$")
DEATH = re.compile(r"\[worker\d+\] \[(\d+)\] dies at version (\d+), call (\d+), in life (\d+)$", re.MULTILINE)


class RabitTest(LaunchCase):
    def ranks(self, *command, world=WORLD, restarts=20, expect=OK, flags=(), variables=None):
        """Launch ranks; return what each of them has printed, in order, and the errors."""
        out, err = self.launch(
            f"-n{world}", f"--restarts={restarts}", *flags, "--", *command, variables={**LIBRARY, **(variables or {})},
            expect=expect,
        )
        lines = collections.defaultdict(list)
        for line in out.splitlines():
            if match := LINE.match(line):
                lines[int(match[1])].append(match[2])
        return lines, err

    def recover(self, kind, *deaths, arguments=()):
        """Launch ranks that die, and return the hash that all have at the end, and what they have printed."""
        lines, err = self.ranks(
            RECOVER, str(COUNT), kind, *(f"mock={each}" for each in deaths), *arguments, flags=["--unfired=warn"]
        )
        self.assertEqual(sorted(lines), list(range(WORLD)))
        # A rank that has died has no end before its last life.
        ends = [[line for line in of if line.startswith("end")] for of in lines.values()]
        self.assertTrue(all(len(each) == 1 for each in ends), lines)
        (result,) = {each[0] for each in ends}
        made = [",".join(numbers) for numbers in DEATH.findall(err)]
        possible = self.possible(deaths)
        self.assertEqual(sorted(made), sorted(possible), err)
        return result, lines

    @staticmethod
    def possible(deaths):
        """The deaths that come: a rank that has died is in its next life."""
        lives = collections.Counter()
        made = []
        for each in sorted(deaths, key=lambda death: [int(number) for number in death.split(",")[1:3]]):
            rank, life = each.split(",")[0], int(each.split(",")[3])
            if life == lives[rank]:
                lives[rank] += 1
                made.append(each)
        return made

    def check(self, kind, *deaths):
        calm, _ = self.recover(kind)
        result, lines = self.recover(kind, *deaths)
        self.assertEqual(result, calm)
        for rank, of in lines.items():
            life = sum(each.startswith(f"{rank},") for each in self.possible(deaths))
            self.assertEqual(sum(line.startswith("load") for line in of), life + 1, (rank, of))
            # An input is given again by a rank that dies before the others have all given theirs, and by no other.
            prepared = collections.Counter(line for line in of if line.startswith("prepare"))
            self.assertEqual(prepared, {f"prepare {i}": 1 for i in range(ITERATIONS)}, (rank, of))

    def test_the_deaths_of_model_recover(self):
        self.check("global", *DEATHS)

    def test_ranks_die_in_the_same_call(self):
        self.check("global", *DIE_SAME)

    def test_ranks_die_again_while_others_recover(self):
        self.check("global", *DIE_HARD)

    def test_ranks_with_lazy_checkpoints_die(self):
        self.check("lazy", *DIE_SAME)
        self.check("lazy", *DIE_HARD)

    def test_ranks_with_local_models_die(self):
        self.check("local", *LOCAL)

    def test_ranks_die_in_every_call_of_a_version(self):
        # A rank each: the first call, a broadcast's root, the Sum, the Allgather, and the checkpoint.
        self.check("global", "2,1,0,0", "3,1,3,0", "5,1,9,0", "6,1,10,0", "7,1,11,0")

    def test_ranks_die_with_copies_of_their_models_alone(self):
        result, lines = self.recover("global", *DIE_SAME, arguments=["force_local=1"])
        self.assertEqual(result, self.recover("global")[0])
        self.assertEqual([line for line in lines[9] if line.startswith("load")], ["load 0", "load 1"])

    def test_parameters_without_an_effect_are_listed_once(self):
        arguments = ["rabit_reduce_ring_mincount=10", "rabit_reduce_buffer=1MB", "rabit_global_replica=3",
                     "rabit_local_replica=1", "rabit_timeout=true", "rabit_timeout_sec=60", "rabit_bootstrap_cache=true"]
        lines, err = self.ranks(RECOVER, str(COUNT), "global", *arguments)
        self.assertEqual(sorted(lines), list(range(WORLD)))
        self.assertEqual(
            [line for line in err.splitlines() if "effect" in line],
            ["[worker0] rabit: without effect here: rabit_reduce_ring_mincount, rabit_reduce_buffer"],
        )

    def test_statistics_are_printed_by_rank_0(self):
        out, _ = self.launch("-n3", "--", RECOVER, "10", "global", "report_stats=1", variables=LIBRARY)
        reports = [line for line in out.splitlines() if line.startswith("[v")]
        self.assertEqual([line.split(",")[0] for line in reports], [f"[v{i + 1}] 9 calls" for i in range(ITERATIONS)])

    def test_the_programs_of_the_guide(self):
        lines, _ = self.ranks(CALLS, "basic", world=2)
        same = ["max 1 2 3", "sum 2 4 6", "min 0 1 2", "or 3"]
        self.assertEqual(lines, {0: same, 1: same})
        lines, _ = self.ranks(CALLS, "broadcast", world=3)
        self.assertEqual(lines, {rank: ["hello world 7 7"] for rank in range(3)})

    def test_functions_at_the_end_of_the_process_are_still_ranks(self):
        lines, _ = self.ranks(CALLS, "at_exit", world=2, restarts=0)
        both = ["max 1 2 3", "sum 2 4 6", "min 0 1 2", "or 3", "static 1"]
        self.assertEqual(lines, {0: both, 1: both})

    def test_prepare_runs_once_for_each_rank(self):
        lines, err = self.ranks(CALLS, "lazy_allreduce", "mock=0,0,1,0", world=2)
        self.assertEqual(lines, {rank: ["run prepare", "sum 2 4 6"] for rank in range(2)})
        self.assertEqual(DEATH.findall(err), [("0", "0", "1", "0")])

    def test_functions_of_the_program_fold_in_the_order_of_ranks(self):
        lines, err = self.ranks(CALLS, "reducers", "mock=1,0,1,0", world=6)
        self.assertEqual(lines, {rank: ["012345 xxxxxx 6 4"] for rank in range(6)})
        self.assertEqual(len(DEATH.findall(err)), 1)

    def test_a_rank_prints_at_the_launch(self):
        out, _ = self.launch("-n3", "--", CALLS, "tracker", variables=LIBRARY)
        self.assertEqual(sorted(out.splitlines()), [f"rank {rank} of 3" for rank in range(3)])

    def test_calls_before_load_are_repeated(self):
        lines, _ = self.ranks(CALLS, "boot", "mock=1,0,0,0", "mock=2,2,0,0", world=4)
        self.assertEqual(lines, {rank: ["boot 4 3 12"] for rank in range(4)})

    def test_calls_before_load_are_found_by_their_place_in_the_program(self):
        for deaths in (["mock=2,2,0,0"], ["mock=1,1,0,0", "mock=1,2,0,1"]):
            with self.subTest(deaths=deaths):
                lines, _ = self.ranks(CALLS, "boot_turned", "rabit_bootstrap_cache=1", *deaths, world=4)
                self.assertEqual(lines, {rank: ["boot 4 3 12"] for rank in range(4)})

    def test_functions_of_c(self):
        lines, err = self.ranks(C_API, "mock=1,1,0,0", "mock=2,2,3,0", "mock=0,2,0,0", world=4)
        self.assertEqual(lines, {rank: ["3 1"] for rank in range(4)})
        self.assertEqual(len(DEATH.findall(err)), 3)

    def test_what_is_refused_is_an_error_of_the_process(self):
        for name, problem in (
            ("bitor", "BitOR is for integers"),
            ("root", "root 77 is no rank of a world of 3"),
            ("load", "LoadCheckPoint: it was called before"),
            ("mixed", "CheckPoint: a local model, but LoadCheckPoint or checkpoints before had none"),
            ("sizes", "call 2 of"),
            ("gather", "the parts of all ranks have 12 bytes together, but the whole has 16"),
            ("nested", "Broadcast: called by a function of the program within another call"),
            ("rabit_timeout_sec=x", "rabit_timeout_sec=x: the value is a number from 1 on"),
            ("rabit_world_size=4", "rabit_world_size=4: the launch has a world of 3"),
        ):
            with self.subTest(name):
                lines, err = self.ranks(CALLS, name, world=3, restarts=0, expect=REFUSED)
                self.assertIn(problem, err)
                self.assertEqual(lines, {})

    def test_an_exception_of_prepare_reaches_the_program(self):
        lines, _ = self.ranks(CALLS, "throws", world=3)
        self.assertEqual(lines, {rank: ["no input 3"] for rank in range(3)})

    def test_a_rank_that_does_not_come_is_an_error_that_names_it(self):
        self.cluster.start_shards()
        (node,) = self.cluster.start_nodes(1)
        flags = ["--world=3", "--first=0", "--job=incomplete", f"--address={node.client_address}"]
        _, err = self.ranks(CALLS, "basic", "rabit_timeout_sec=5", world=2, restarts=0, expect=REFUSED, flags=flags)
        self.assertRegex(err, r"rabit: Init: .*rank 2")

    def test_ranks_are_threads(self):
        self.cluster.start_shards()
        (node,) = self.cluster.start_nodes(1)
        job = {**LIBRARY, "PHALANX_JOB": "threads", "PHALANX_ADDRESS": node.client_address}
        ended = subprocess.run(
            [CALLS, "threads"], env={**environment(), **job}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        self.assertEqual(ended.returncode, OK, ended)
        self.assertEqual(
            sorted(ended.stdout.splitlines()),
            sorted(f"[{rank}] {line}" for rank in range(3) for line in ("max 2 3 4", "sum 6 9 12", "min 0 1 2", "or 7")),
        )

    def test_one_process_needs_no_launch(self):
        for arguments, variables, status, text in (
            (["basic"], {}, OK, "[0] sum 0 1 2"),
            (["basic", "mock=0,0,1,0"], {}, DIED, "[0] dies at version 0, call 1, in life 0"),
            (["basic"], {"DMLC_TRACKER_URI": "10.0.0.1"}, REFUSED, "start the program with `phalanx launch`"),
            (["basic"], {"DMLC_ROLE": "server"}, OK, "a process of role server is no worker"),
            (["root"], {}, REFUSED, "root 77 is no rank of a world of 1"),
            (["throws"], {}, OK, "[0] no input 1"),
        ):
            with self.subTest(arguments=arguments, variables=variables):
                ended = subprocess.run(
                    [CALLS, *arguments], env={**environment(), **variables}, capture_output=True, text=True,
                    timeout=DEADLINE_S, check=False,
                )
                self.assertEqual(ended.returncode, status, ended)
                self.assertIn(text, ended.stdout + ended.stderr)

    def test_a_library_that_cannot_be_loaded_is_an_error_that_says_what_to_do(self):
        for library, problem in (("/nonexistent.so", "PHALANX_LIBRARY: /nonexistent.so"), ("", "set LD_LIBRARY_PATH")):
            _, err = self.launch("--", CALLS, "basic", variables={"PHALANX_LIBRARY": library}, expect=REFUSED)
            self.assertIn(problem, err)


if __name__ == "__main__":
    unittest.main()
