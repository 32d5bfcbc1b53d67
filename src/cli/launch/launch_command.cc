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

// Sets `given` if the flag is given.
FlagValue Noted(FlagValue value, bool* given) {
  value.parse = [parse = std::move(value.parse), given](const std::vector<std::string>& texts) {
    *given = true;
    return parse(texts);
  };
  return value;
}

std::optional<int> Given(int value) {
  return value == kUnset ? std::nullopt : std::optional<int>(value);
}

// The flags of a role of a parameter server.
struct RoleFlags {
  std::string role;
  int tasks = kUnset;
  int world = kUnset;
  int first = kUnset;
  // "--servers", "--server-world" and "--server-first".
  std::string tasks_flag = absl::StrCat("--", role, "s");
  std::string world_flag = absl::StrCat("--", role, "-world");
  std::string first_flag = absl::StrCat("--", role, "-first");

  bool any() const { return tasks != kUnset || world != kUnset || first != kUnset; }
  GivenPlace given() const {
    return {role, tasks, Given(world), Given(first), tasks_flag, world_flag, first_flag};
  }
};

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
           "With --servers and --workers the command starts a parameter server: server0, server1, "
           "... and\n"
           "worker0, worker1, ..., in the roles server and worker of one job. Servers end by "
           "themselves when\n"
           "all workers have left; the command waits for them. On several hosts, --server-world, "
           "--server-first,\n"
           "--worker-world and --worker-first stand for --world and --first.\n"
           "A TASK of --fail is a number (3: worker3) or a name (server1). A POINT is CALL or "
           "CALL:entry\n"
           "(57: the 57th call of a group), CALL:put:BYTES (when the node has so many bytes of its "
           "input),\n"
           "load, checkpoint:N or leave (of a session). Tasks of a parameter server die at a clock "
           "of a life:\n"
           "server:RANK,CLOCK,LIFE@push, @clock, @snapshot:BYTES or @restore, and "
           "worker:RANK,CLOCK,LIFE@push,\n"
           "@pull or @clock. Words mock=RANK,VERSION,SEQ,LIFE among "
           "the\n"
           "arguments of PROGRAM declare deaths, too.";
  }

  // The tasks write their output themselves.
  bool output_is_result() const override { return false; }

  void AddFlags(Flags& flags) override {
    flags.Positional("PROGRAM", "The program and its arguments, behind --",
                     Texts(&options_.command, "PROGRAM"));
    flags.Argument("-n,--tasks", "How many tasks to start here",
                   Noted(Integer(&tasks_, 1, kMaxTasks), &has_tasks_));
    flags.Argument("--job", "Name of the job; by default a random one",
                   Text(&options_.job, "NAME"));
    flags.Argument("--role", "The tasks are called ROLE0, ROLE1, ...",
                   Noted(Text(&role_, "ROLE"), &has_role_));
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
    flags.Argument("--checkpoint-dir",
                   "Directory on each host in which sessions and servers keep checkpoints",
                   Text(&options_.checkpoint_dir, "PATH"));
    flags.Argument("--no-prefix", "Do not put [TASK] in front of each line of output",
                   Switch(&no_prefix_));
    AddServerFlags(flags);
    flags.Group("Node");
    flags.Setting("--address",
                  "The node of the tasks, unix:/path or a path; by default a private cluster",
                  Text(&options_.address, "ADDRESS"));
  }

  absl::Status Run() override {
    OpenStandardDescriptors();
    PHALANX_RETURN_IF_ERROR(SetPlace());
    options_.prefix = !no_prefix_;
    PHALANX_ASSIGN_OR_RETURN(options_.deaths,
                             DeclaredDeaths::Parse(fail_, options_.command, options_.tasks));
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
  void AddServerFlags(Flags& flags) {
    flags.Group("Parameter server");
    flags.Argument("--servers", "Instead of -n: how many servers to start here",
                   Optional(&servers_.tasks, 0, kMaxTasks));
    flags.Argument("--workers", "With --servers: how many workers to start here",
                   Optional(&workers_.tasks, 0, kMaxTasks));
    flags.Argument(
        "--spares",
        "With --servers: how many processes to start here that take the parts of servers "
        "that die",
        Optional(&spares_.tasks, 0, kMaxTasks));
    flags.Argument("--spare-world",
                   "Number of spares of the job on all hosts; by default those of --spares",
                   Optional(&spares_.world, 1, kMaxWorld));
    flags.Argument("--spare-first",
                   "Number of the first spare here; by default 0 or the scheduler's",
                   Optional(&spares_.first, 0, kMaxWorld));
    flags.Argument("--spare-after",
                   "With --restarts: how long a server has been dead whose part a spare takes",
                   TimeSpan(&options_.spare_after));
    flags.Argument("--server-world",
                   "Number of servers of the job on all hosts; by default those of --servers",
                   Optional(&servers_.world, 1, kMaxWorld));
    flags.Argument("--server-first",
                   "Number of the first server here; by default 0 or the scheduler's",
                   Optional(&servers_.first, 0, kMaxWorld));
    flags.Argument("--worker-world",
                   "Number of workers of the job on all hosts; by default those of --workers",
                   Optional(&workers_.world, 1, kMaxWorld));
    flags.Argument("--worker-first",
                   "Number of the first worker here; by default 0 or the scheduler's",
                   Optional(&workers_.first, 0, kMaxWorld));
  }

  // What is given for each role.
  absl::StatusOr<std::vector<GivenPlace>> GivenPlaces() const {
    if (!servers_.any() && !workers_.any()) {
      if (spares_.any()) {
        return absl::InvalidArgumentError("--spares is for jobs with --servers and --workers");
      }
      if (role_.empty()) return absl::InvalidArgumentError("--role is empty");
      return std::vector<GivenPlace>{{role_, tasks_, Given(world_), Given(first_)}};
    }
    for (const RoleFlags* role : {&servers_, &workers_}) {
      if (role->tasks != kUnset) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(role->tasks_flag, " is required for a parameter server: give the number of ",
                       role->role, "s to start here, 0 if other launches start them"));
    }
    constexpr absl::string_view kMeaningless = " has no meaning with --servers and --workers";
    if (has_tasks_) return absl::InvalidArgumentError(absl::StrCat("--tasks", kMeaningless));
    if (has_role_) {
      return absl::InvalidArgumentError(
          absl::StrCat("--role", kMeaningless, ": their tasks have the roles server and worker"));
    }
    if (world_ != kUnset) {
      return absl::InvalidArgumentError(
          absl::StrCat("--world", kMeaningless, ": give --server-world and --worker-world"));
    }
    if (first_ != kUnset) {
      return absl::InvalidArgumentError(
          absl::StrCat("--first", kMeaningless, ": give --server-first and --worker-first"));
    }
    if (servers_.tasks + workers_.tasks == 0 && spares_.tasks <= 0) {
      return absl::InvalidArgumentError("--servers=0 --workers=0 starts no task");
    }
    std::vector<GivenPlace> all = {servers_.given(), workers_.given()};
    if (spares_.any()) {
      GivenPlace given = spares_.given();
      if (given.tasks == kUnset) given.tasks = 0;
      // It would be dropped without a word.
      if (given.tasks == 0 && given.first.has_value()) {
        return absl::InvalidArgumentError(
            "--spare-first is for launches that start spares: give --spares");
      }
      if (given.tasks > 0 || given.world.has_value()) all.push_back(given);
    }
    return all;
  }

  absl::Status SetPlace() {
    PHALANX_ASSIGN_OR_RETURN(const std::vector<GivenPlace> all, GivenPlaces());
    std::vector<RolePlace> roles;
    for (const GivenPlace& given : all) {
      PHALANX_ASSIGN_OR_RETURN(
          roles.emplace_back(),
          FindRolePlace(given, [](const char* name) -> const char* { return std::getenv(name); }));
    }
    options_.tasks = LaunchTasks(std::move(roles));
    if (!options_.tasks.job_is_larger()) return absl::OkStatus();
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
  int tasks_ = 1;
  bool has_tasks_ = false;
  std::string role_ = kWorkerRole;
  bool has_role_ = false;
  RoleFlags servers_ = {kServerRole};
  RoleFlags workers_ = {kWorkerRole};
  RoleFlags spares_ = {kSpareRole};
  int world_ = kUnset;
  int first_ = kUnset;
  bool no_prefix_ = false;
  std::vector<std::string> fail_;
  std::string unfired_ = kFail;
};

}  // namespace

std::unique_ptr<Command> NewLaunchCommand() { return std::make_unique<LaunchCommand>(); }

}  // namespace phalanx::runtime
