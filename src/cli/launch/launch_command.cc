#include "src/cli/launch/launch_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/launch/declared_deaths.h"
#include "src/cli/launch/job_place.h"
#include "src/cli/launch/launcher.h"
#include "src/client/connection/embedded.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Each task takes three descriptors, and an operating system has some thousand for a process.
constexpr int kMaxTasks = 4096;
constexpr int kMaxRestarts = 1 << 30;
constexpr absl::Duration kTimeToStartCluster = absl::Seconds(30);

// The values of --unfired.
constexpr char kFail[] = "fail";
constexpr char kWarn[] = "warn";

// The value of a flag that was not given.
constexpr int kUnset = -1;

FlagValue Optional(int* target, int least, int most) {
  FlagValue value = Integer(target, least, most);
  value.default_text.clear();
  return value;
}

// A task has the descriptors 0 to 2, so they must not be those of the launch's loop or pipes. A
// closed one becomes /dev/null, here and in the daemon.
void OpenStandardDescriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

class LaunchCommand : public Command {
 public:
  absl::string_view name() const override { return "launch"; }
  absl::string_view summary() const override { return "Start the tasks of a job on this host"; }
  absl::string_view details() const override {
    return "Every task has PHALANX_JOB, PHALANX_TASK (worker0), PHALANX_ROLE, PHALANX_WORLD, "
           "PHALANX_LIFE\n"
           "(0; 1 after its first restart) and PHALANX_ADDRESS in its environment, and /dev/null "
           "as "
           "its\n"
           "input. Without an address the tasks share a private cluster, which ends with this "
           "command.\n"
           "If a task fails and no restart is left, the command stops the others and exits as that "
           "task\n"
           "did, or with 128 + the signal that ended it; with 127 if there is no such program, and "
           "126 if\n"
           "it cannot be executed. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the tasks "
           "and\n"
           "end them, SIGUSR1 and SIGUSR2 are only passed on. What a task leaves in its process "
           "group "
           "is\n"
           "killed with it. All tasks end if this command is killed; processes that they have "
           "started\n"
           "themselves can then remain.\n"
           "On several hosts, run the command on each with the same --job and --world, its own "
           "--first, and\n"
           "the --address of the host's node. In a step of srun, --world and --first follow from\n"
           "SLURM_STEP_NUM_TASKS and SLURM_PROCID; in an indexed job of Kubernetes, --first from\n"
           "JOB_COMPLETION_INDEX.\n"
           "A POINT of --fail is CALL or CALL:entry (57: the 57th call of a group), "
           "CALL:put:BYTES\n"
           "(when the node has so many bytes of its input), load, checkpoint:N or leave (of a\n"
           "session). Words mock=RANK,VERSION,SEQ,LIFE among the arguments of PROGRAM declare\n"
           "deaths, too.";
  }

  // The tasks write their output themselves.
  bool output_is_result() const override { return false; }

  void AddFlags(Flags& flags) override {
    flags.Positional("PROGRAM", "The program and its arguments, behind --",
                     Texts(&options_.command, "PROGRAM"));
    flags.Argument("-n,--tasks", "How many tasks to start here",
                   Integer(&options_.tasks, 1, kMaxTasks));
    flags.Argument("--job", "Name of the job; by default a random one",
                   Text(&options_.job, "NAME"));
    flags.Argument("--role", "The tasks are called ROLE0, ROLE1, ...",
                   Text(&options_.role, "ROLE"));
    flags.Argument("--world", "Number of tasks of the job on all hosts; by default those of -n",
                   Optional(&world_, 1, kMaxWorld));
    flags.Argument("--first", "Number of the first task here; by default 0 or the scheduler's",
                   Optional(&first_, 0, kMaxWorld));
    flags.Argument("--restarts", "How often failed tasks are started again, all together",
                   Integer(&options_.restarts, 0, kMaxRestarts));
    flags.Argument(
        "--fail",
        "Kill this task in this call of a group, or at another point; again for its next "
        "life",
        Texts(&fail_, "TASK@POINT"));
    flags.Argument("--unfired", "What a declared death that is not made does",
                   Choice(&unfired_, {kFail, kWarn}));
    flags.Argument("--grace", "Time that tasks have to end after a signal, before SIGKILL",
                   TimeSpan(&options_.grace));
    flags.Argument("--timeout", "Stop the tasks after this time", TimeSpan(&options_.timeout));
    flags.Argument("--no-prefix", "Do not put [TASK] in front of each line of output",
                   Switch(&no_prefix_));
    flags.Group("Node");
    flags.Setting("--address",
                  "The node of the tasks, unix:/path or a path; by default a private cluster",
                  Text(&options_.address, "ADDRESS"));
  }

  absl::Status Run() override {
    OpenStandardDescriptors();
    PHALANX_RETURN_IF_ERROR(SetPlace());
    options_.prefix = !no_prefix_;
    // Their ranks are those of workers.
    const bool has_mock = options_.role == kWorkerRole;
    PHALANX_ASSIGN_OR_RETURN(
        options_.deaths,
        DeclaredDeaths::Parse(fail_, has_mock ? options_.command : std::vector<std::string>(),
                              options_.first, options_.tasks, options_.world));
    options_.deaths_must_be_made = unfired_ != kWarn;
    if (options_.job.empty()) {
      options_.job = absl::StrCat("job-", absl::Hex(SystemRandom64(), absl::kZeroPad16));
    }
    if (options_.address.empty()) {
      // This program is the daemon too. It ends with this process, however that ends.
      PHALANX_ASSIGN_OR_RETURN(
          options_.address,
          internal::EmbeddedAddress(/*executable=*/"", /*capacity_bytes=*/0, kTimeToStartCluster));
      options_.private_cluster = true;
    }
    return Launcher(std::move(options_)).Run();
  }

 private:
  absl::Status SetPlace() {
    if (options_.role.empty()) return absl::InvalidArgumentError("--role is empty");
    const auto given = [](int value) {
      return value == kUnset ? std::nullopt : std::optional<int>(value);
    };
    PHALANX_ASSIGN_OR_RETURN(
        const JobPlace place,
        FindJobPlace(options_.tasks, given(world_), given(first_),
                     [](const char* name) -> const char* { return std::getenv(name); }));
    options_.world = place.world;
    options_.first = place.first;
    if (place.world == options_.tasks) return absl::OkStatus();
    if (options_.job.empty()) {
      return absl::InvalidArgumentError(
          "a job with tasks of other launches needs a name: give all of them the same --job");
    }
    if (options_.address.empty()) {
      return absl::InvalidArgumentError(
          "a job with tasks of other launches needs a cluster that all of them reach: start a node "
          "on each host, and set --address or PHALANX_ADDRESS");
    }
    return absl::OkStatus();
  }

  LaunchOptions options_;
  int world_ = kUnset;
  int first_ = kUnset;
  bool no_prefix_ = false;
  std::vector<std::string> fail_;
  std::string unfired_ = kFail;
};

}  // namespace

std::unique_ptr<Command> NewLaunchCommand() { return std::make_unique<LaunchCommand>(); }

}  // namespace phalanx::runtime
