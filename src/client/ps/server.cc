#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "phalanx/ps.h"
#include "src/client/ps/server_state.h"
#include "src/client/ps/spares/spare.h"
#include "src/common/io/whole_file.h"
#include "src/common/status_macros.h"
#include "src/ps/part.h"

namespace phalanx::ps {
namespace {

// A program that names its task is no spare.
absl::StatusOr<Membership> JoinAsServer(Client& client, const Options& options) {
  PHALANX_ASSIGN_OR_RETURN(std::optional<internal::SpareOptions> spare,
                           internal::SpareOptionsFromLaunch());
  if (spare.has_value() && options.task.empty()) {
    spare->job = options.job;
    if (options.world > 0) spare->server_world = options.world;
    spare->server_role = options.server_role;
    spare->join_timeout = options.peer_timeout;
    return internal::JoinInsteadOf(client, *spare);
  }
  JoinOptions join;
  join.world = options.world;
  join.role = options.server_role;
  join.timeout = std::min(join.timeout, options.peer_timeout);
  return client.Join(options.job, options.task, join);
}

}  // namespace

// No worker is waited for here: the program adds its tables first, and workers are welcomed by Run.
absl::StatusOr<Server> Server::Join(Client& client, Options options) {
  if (options.checkpoint_dir.empty()) {
    const char* const directory = std::getenv("PHALANX_CHECKPOINT_DIR");
    if (directory != nullptr) options.checkpoint_dir = directory;
  }
  if (!options.checkpoint_dir.empty()) {
    PHALANX_RETURN_IF_ERROR(CheckDirectory(options.checkpoint_dir));
  }
  PHALANX_ASSIGN_OR_RETURN(Membership member, JoinAsServer(client, options));
  // A worker that finds more servers does not join either.
  if (member.world() > kMaxServers) {
    return absl::InvalidArgumentError(
        absl::StrCat("Join: a world of ", member.world(), " servers; at most ", kMaxServers));
  }
  return Server(std::make_unique<internal::ServerState>(client.shared_from_this(),
                                                        std::move(member), options));
}

Server::Server(std::unique_ptr<internal::ServerState> state) : state_(std::move(state)) {}
Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

int Server::rank() const { return state_->member().rank(); }
int Server::servers() const { return state_->member().world(); }
uint64_t Server::life() const { return state_->member().life(); }

absl::Status Server::AddTable(const TableSpec& spec) {
  if (spec.update == Update::kOwn) {
    return absl::InvalidArgumentError(
        absl::StrCat("AddTable: ", spec.name, ": an own update needs a function"));
  }
  return state_->AddTable(spec, nullptr);
}

absl::Status Server::AddTableWith(const TableSpec& spec, OwnUpdate update) {
  if (update == nullptr || spec.update != Update::kOwn) {
    return absl::InvalidArgumentError(
        absl::StrCat("AddTable: ", spec.name, ": a function goes with Update::kOwn"));
  }
  return state_->AddTable(spec, std::move(update));
}

void Server::OnRequest(std::function<absl::StatusOr<Reply>(const RequestInfo&)> answer) {
  state_->OnRequest(std::move(answer));
}

absl::Status Server::Run() { return state_->Run(); }
void Server::Stop() { state_->Stop(); }
Future<Done> Server::BarrierAsync(BarrierGroup group, const BarrierOptions& options) {
  return state_->Barrier(group, options);
}
void Server::Drop() { state_->Drop(); }
void Server::Finish() { state_->Finish(); }
void Server::OnUnsaved(
    std::function<void(absl::string_view table, const absl::Status& why)> unsaved) {
  state_->OnUnsaved(std::move(unsaved));
}
std::string Server::Describe() const { return state_->Describe(); }
std::vector<Member> Server::Members(absl::string_view role) const {
  const Membership& member = state_->member();
  return role.empty() ? member.Members() : member.Members(role);
}

namespace internal {
// Templates of the public header use these, which cannot see Part.
RowValues RowOf(Part& part, Key key) {
  const RowRef row = part.Row(key);
  return {row.values, row.length};
}

RowValues ResizeRow(Part& part, Key key, uint32_t length) {
  const RowRef row = part.Resize(key, length);
  return {row.values, row.length};
}

RowRun RunOf(Part& part) {
  const Part::Run run = part.AllRows();
  return {run.first, run.keys, run.values};
}
}  // namespace internal

}  // namespace phalanx::ps
