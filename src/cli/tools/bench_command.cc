#include "src/cli/tools/bench_command.h"

#include <signal.h>

#include <fstream>
#include <iostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/cli/bench/operation.h"
#include "src/cli/bench/relay_killer.h"
#include "src/cli/bench/runner.h"
#include "src/cli/objects/element_flags.h"
#include "src/cli/objects/node_connection.h"
#include "src/cli/tools/directory_connection.h"
#include "src/cli/views/tree_drawing.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

constexpr int kMaxWorld = 10000;

class BenchCommand : public Command {
 public:
  absl::string_view name() const override { return "bench"; }
  absl::string_view summary() const override { return "Run one rank of a benchmark"; }
  absl::string_view details() const override {
    return "Start one process for each rank 0..WORLD-1, each at its own node, with the same "
           "--session.\n"
           "The ranks find each other through the store, and rank 0 prints the records. All ranks\n"
           "must share a clock: one machine with emulated hosts.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional(
        "OP",
        absl::StrCat("The operation to measure: ", absl::StrJoin(bench::OperationNames(), ", ")),
        Choice(&options_.op, bench::OperationNames()));
    flags.Argument("--world", "Number of ranks", Integer(&options_.world, 1, kMaxWorld));
    flags.Argument("--rank", "Number of this rank", Integer(&options_.rank, 0, kMaxWorld));
    flags.Argument("--sizes", "Sizes of objects", ByteSizeList(&options_.sizes));
    flags.Argument("--runs", "Counted runs of each size", Integer(&options_.runs, 1, 1000000));
    flags.Argument("--warmup", "Uncounted runs before", Integer(&options_.warmup, 0, 1000));
    flags.Argument(
        "--calls",
        "Calls in a run of a group's operation or job_allreduce, one after the other; 0: "
        "32 MiB of them, at most 1000",
        Integer(&options_.calls, 0, 1000000));
    flags.Argument("--session", "Name of the session, new for each benchmark",
                   Text(&options_.session, "NAME"));
    flags.Argument("--raw-host", "This host's address for the bare sockets that measure the limit",
                   Text(&options_.raw_host, "HOST"));
    flags.Argument("--no-limit", "Do not measure bare sockets", Switch(&no_limit_));
    flags.Argument("--stagger",
                   "Receiver i of a broadcast starts i-1 times this much later; source i of a "
                   "reduction arrives i times this much later, and the last one starts the clock",
                   TimeSpan(&options_.stagger));
    flags.Argument("--with-put", "The Put is inside the clock of broadcast and all_to_all",
                   Switch(&options_.with_put));
    AddReductionFlags(flags);
    flags.Argument("--waiting", "Receivers call Get before the Put, which starts the clock",
                   Switch(&options_.waiting));
    flags.Argument("--kill",
                   "N@FRACTION: kill N relays that have that fraction; of a reduction, nodes with "
                   "two slots below and above, whose sources are put again at once",
                   Text(&kill_, "N@F"));
    flags.Argument("--stop", "N@FRACTION: like --kill, but stop them (SIGSTOP)",
                   Text(&stop_, "N@F"));
    flags.Argument("--kill-member",
                   "Kill the last rank of a group_allreduce this long after the start, and measure "
                   "the time until all others have a result without it",
                   TimeSpan(&options_.faults.kill_member));
    flags.Argument("--trace", "Show the tree of the slowest broadcast", Switch(&options_.trace));
    flags.Argument("--cpu-pids", "Processes whose CPU time is charged, for rank 0",
                   TextList(&cpu_pids_, "PID"));
    flags.Argument("--json", "Print the records as JSON", Switch(&json_));
    flags.Argument("--json-file", "Write the records to this file as JSON",
                   Text(&json_file_, "FILE"));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    // All text arguments are checked before the first connection, so that no rank waits for one
    // that cannot start.
    PHALANX_RETURN_IF_ERROR(ParseLists());
    // Scripts pass --raw-host always; the switch overrides it.
    if (no_limit_) options_.raw_host.clear();
    PHALANX_ASSIGN_OR_RETURN(options_.reduction.dtype, ParseDType(dtype_));
    PHALANX_ASSIGN_OR_RETURN(options_.reduction.op, ParseReduceOp(reduce_op_));
    options_.reduction.fixed_order = order_ == "fixed";
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, ConnectToNode(directory_.node));
    bench::DirectoryTools tools;
    DirectoryConnection connection;
    // Only rank 0 kills relays and draws trees.
    if ((options_.faults.victims > 0 || options_.trace) && options_.rank == 0) {
      PHALANX_ASSIGN_OR_RETURN(connection, ConnectToDirectory(directory_));
      // The tools keep a reference to the connection, which lives until the end of Run.
      tools = bench::MakeDirectoryTools(*connection.tools, options_.faults.victims,
                                        options_.faults.fraction,
                                        options_.faults.stop ? SIGSTOP : SIGKILL);
      tools.draw_tree = [&connection](const ObjectId& id) -> absl::StatusOr<std::string> {
        PHALANX_ASSIGN_OR_RETURN(const auto tree, connection.tools->Describe(id));
        return DrawTree(tree, /*unicode=*/false);
      };
    }
    PHALANX_ASSIGN_OR_RETURN(const std::vector<bench::BenchRecord> records,
                             bench::RunBench(options_, client, tools));
    // Rank 0 has collected the records of all ranks.
    return options_.rank == 0 ? Show(records) : absl::OkStatus();
  }

 private:
  void AddReductionFlags(Flags& flags) {
    flags.Argument("--dtype", "Type of the elements of a reduction", DTypeChoice(&dtype_));
    flags.Argument("--op", "Operation of a reduction", ReduceOpChoice(&reduce_op_));
    flags.Argument("--order", "Order of a reduction's fold", Choice(&order_, {"arrival", "fixed"}));
    flags.Argument("--subset", "Number of sources of a reduction, the first to arrive; 0: all",
                   Integer(&options_.reduction.subset, 0, kMaxWorld));
    flags.Argument("--absent", "Number of ranks, the last ones, that never put their source",
                   Integer(&options_.reduction.absent, 0, kMaxWorld));
    flags.Argument("--spare-copies",
                   "Those ranks' nodes have copies of all sources; lost sources are not put again",
                   Switch(&options_.reduction.spare_copies));
  }

  // Process ids are parsed here, because a list flag has texts only.
  absl::Status ParseLists() {
    for (const std::string& text : cpu_pids_) {
      int pid = 0;
      if (!absl::SimpleAtoi(text, &pid) || pid <= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("--cpu-pids: '", text, "' is not a process id"));
      }
      options_.cpu_pids.push_back(pid);
    }
    return ParseVictims();
  }

  absl::Status ParseVictims() {
    bench::Faults& faults = options_.faults;
    // One signal per run, so that a record has one cause.
    if (!kill_.empty() && !stop_.empty()) {
      return absl::InvalidArgumentError("--kill and --stop exclude each other");
    }
    // Both flags have the same form, so one parser serves them.
    faults.stop = !stop_.empty();
    const std::string& text = faults.stop ? stop_ : kill_;
    if (text.empty()) return absl::OkStatus();
    const std::vector<std::string> parts = absl::StrSplit(text, '@');
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &faults.victims) ||
        !absl::SimpleAtod(parts[1], &faults.fraction) || faults.victims < 1 ||
        faults.fraction < 0 || faults.fraction >= 1) {
      return absl::InvalidArgumentError(absl::StrCat(faults.stop ? "--stop" : "--kill", ": '", text,
                                                     "' is not N@FRACTION, as in 1@0.5"));
    }
    return absl::OkStatus();
  }

  absl::Status Show(const std::vector<bench::BenchRecord>& records) const {
    if (!json_file_.empty()) {
      std::ofstream file(json_file_);
      file << bench::RecordsAsJson(records) << "\n";
      // A full disk shows only at the flush.
      if (!file.flush()) {
        return absl::UnavailableError(absl::StrCat("cannot write ", json_file_));
      }
    }
    std::cout << (json_ ? bench::RecordsAsJson(records) + "\n" : bench::RecordsAsTable(records));
    return absl::OkStatus();
  }

  bench::BenchOptions options_;
  bool no_limit_ = false;
  std::string dtype_ = "f32";
  std::string reduce_op_ = "sum";
  std::string order_ = "arrival";
  std::string kill_;
  std::string stop_;
  std::vector<std::string> cpu_pids_;
  bool json_ = false;
  std::string json_file_;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace phalanx::runtime
