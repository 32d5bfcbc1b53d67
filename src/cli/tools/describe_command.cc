#include "src/cli/tools/describe_command.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/cli/jobs/job_view.h"
#include "src/cli/objects/node_connection.h"
#include "src/cli/tools/object_lookup.h"
#include "src/cli/tools/screen.h"
#include "src/cli/views/colour.h"
#include "src/cli/views/object_names.h"
#include "src/cli/views/object_view.h"
#include "src/client/ps/describe_door.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::runtime {
namespace {

// For the answers of all servers of a job.
constexpr absl::Duration kServersPatience = absl::Seconds(2);
constexpr size_t kMostAsked = 4096;

class DescribeCommand : public Command {
 public:
  absl::string_view name() const override { return "describe"; }
  absl::string_view summary() const override {
    return "Show an object and draw the tree in which it spreads";
  }
  absl::string_view details() const override {
    return "States of a copy: complete; writing (not sealed yet); pulling; starved (its sender "
           "waits\n"
           "itself); idle (partial, without a sender); lost (its node is not connected).";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("ID", "40 hexadecimal digits, or the first of them", Text(&object_.id),
                     /*required=*/false);
    flags.Argument("-n,--name", "The object's name, instead of its id",
                   Text(&object_.name, "NAME"));
    flags.Argument("--job", "Show the members of this job, instead of an object",
                   Text(&job_, "NAME"));
    flags.Argument("-f,--follow", "Repeat until interrupted", Switch(&follow_));
    flags.Argument("--until-copies", "Follow until this many copies are complete",
                   Integer(&until_copies_, 0, 1 << 30));
    flags.Argument("--interval", "Time between two updates", TimeSpan(&interval_));
    flags.Argument("--timeout", "Stop following after this time", TimeSpan(&timeout_));
    flags.Argument("--ascii", "Draw with plain characters", Switch(&ascii_));
    flags.Argument("--json", "Print a JSON object (with --follow one per update)", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    if (!job_.empty()) return DescribeJob();
    PHALANX_RETURN_IF_ERROR(CheckObject(object_));
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    PHALANX_ASSIGN_OR_RETURN(const ObjectId id,
                             FindObject(object_, directory_.node.name_space, *directory.tools));
    // Without --follow an unknown object is an error; with it, the object can still appear.
    if (follow_ || until_copies_ > 0) return Follow(*directory.tools, id);
    const absl::StatusOr<v1::DescribeObjectResponse> object = directory.tools->Describe(id);
    if (!object.ok()) return WithName(id, object.status());
    std::cout << Render(*object) << std::flush;
    return absl::OkStatus();
  }

 private:
  absl::Status DescribeJob() const {
    if (!object_.id.empty() || !object_.name.empty() || follow_ || until_copies_ > 0) {
      return absl::InvalidArgumentError(
          "--job does not go with an object, --follow or --until-copies");
    }
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    PHALANX_ASSIGN_OR_RETURN(const v1::DescribeJobResponse job, directory.tools->DescribeJob(job_));
    // Servers can be slow to answer, and so can the node.
    if (!json_) std::cout << JobAsText(job) << std::flush;
    std::vector<DescribedServer> servers;
    const absl::Status asked = AskServersOf(job, servers);
    if (!asked.ok()) {
      std::cerr << "phalanx describe: servers not asked: " << asked.message() << std::endl;
    }
    std::cout << (json_ ? absl::StrCat(JobDescriptionAsJson(job, servers).dump(), "\n")
                        : ServersAsText(servers))
              << std::flush;
    return absl::OkStatus();
  }

  // The servers of a parameter server, if the job has one. Only clients of a node can ask them.
  absl::Status AskServersOf(const v1::DescribeJobResponse& job,
                            std::vector<DescribedServer>& servers) const {
    // They have a role of their own, and serve nothing before a worker has joined.
    if (job.summary().roles_size() < 2) return absl::OkStatus();
    std::vector<ps::internal::Asked> tasks;
    for (const v1::DescribeJobResponse::Member& described : job.members()) {
      const v1::JobMember& member = described.member();
      if (member.state() != v1::JobMember::LIVE || tasks.size() == kMostAsked) continue;
      const auto role = static_cast<int>(member.role());
      if (role >= job.summary().roles_size()) continue;
      tasks.push_back({.role = job.summary().roles(role).name(),
                       .rank = static_cast<int>(member.rank()),
                       .life = member.life()});
    }
    if (tasks.empty()) return absl::OkStatus();
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, ConnectToNode(directory_.node));
    PHALANX_ASSIGN_OR_RETURN(const auto texts,
                             ps::internal::AskServers(*client, job_, tasks, kServersPatience));
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].ok() && texts[i]->empty()) continue;
      servers.push_back({tasks[i].role, tasks[i].rank, texts[i]});
    }
    return absl::OkStatus();
  }

  // Without --json the text ends with a newline already.
  std::string Render(const v1::DescribeObjectResponse& object) const {
    return json_ ? absl::StrCat(ObjectAsJson(object).dump(), "\n")
                 : ObjectAsText(object, !ascii_, HasColours(STDOUT_FILENO));
  }

  // The directory knows the object, if at all, by its id.
  absl::Status WithName(const ObjectId& id, const absl::Status& status) const {
    v1::ObjectName name;
    name.set_name_space(directory_.node.name_space);
    name.set_name(object_.name);
    const std::string shown = IdWithName(id.binary(), name);
    return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{id.hex(), shown}}));
  }

  absl::Status Follow(directory::ToolsClient& tools, const ObjectId& id) const {
    // One screen for all updates, so that each redraws the last one.
    Screen screen;
    const Instant start = MonotonicNow();
    while (true) {
      const absl::StatusOr<v1::DescribeObjectResponse> object = tools.Describe(id);
      // The object does not exist yet, or the directory is restarting: look again.
      if (object.ok()) {
        screen.Show(Render(*object));
        const int complete = static_cast<int>(object->summary().complete_copies());
        if (until_copies_ > 0 && complete >= until_copies_) return absl::OkStatus();
      } else if (!absl::IsNotFound(object.status()) && !absl::IsUnavailable(object.status()) &&
                 !absl::IsDeadlineExceeded(object.status())) {
        return object.status();
      }
      // Checked after the look, so that a timeout of 0 still looks once.
      if (MonotonicNow() - start >= timeout_) {
        return WithName(id,
                        absl::DeadlineExceededError(absl::StrCat(
                            "timed out following object ", id.hex(), ": ",
                            object.ok() ? "too few complete copies" : object.status().message())));
      }
      if (!screen.Wait(interval_)) return absl::OkStatus();
    }
  }

  ObjectFlags object_;
  std::string job_;
  bool follow_ = false;
  int until_copies_ = 0;
  absl::Duration interval_ = absl::Milliseconds(200);
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool ascii_ = false;
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewDescribeCommand() { return std::make_unique<DescribeCommand>(); }

}  // namespace phalanx::runtime
