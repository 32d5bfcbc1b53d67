#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/ps.h"
#include "src/client/ps/worker_state.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::ps {

// Joins the job, learns how many servers there are, and waits until all of them have welcomed this
// life. What is left of peer_timeout bounds each of the three.
absl::StatusOr<Worker> Worker::Join(Client& client, Options options) {
  const Instant until = MonotonicNow() + options.peer_timeout;
  JoinOptions join;
  join.world = options.world;
  join.role = options.worker_role;
  join.timeout = std::min(join.timeout, options.peer_timeout);
  PHALANX_ASSIGN_OR_RETURN(Membership member, client.Join(options.job, options.task, join));
  // The first server that joins shows how many there are.
  size_t servers = 0;
  uint64_t change = 0;
  while ((servers = member.Members(options.server_role).size()) == 0) {
    const absl::StatusOr<uint64_t> next =
        member.WaitForChange(change, std::max(absl::ZeroDuration(), until - MonotonicNow()));
    if (absl::IsDeadlineExceeded(next.status())) {
      return absl::DeadlineExceededError(absl::StrCat("Join: worker ", member.rank(), " of job ",
                                                      member.job(), ": no task of role ",
                                                      options.server_role, " has joined"));
    }
    PHALANX_RETURN_IF_ERROR(next.status());
    change = *next;
  }
  if (servers > static_cast<size_t>(kMaxServers)) {
    return absl::InvalidArgumentError(absl::StrCat("Join: job ", member.job(), " has ", servers,
                                                   " servers; at most ", kMaxServers));
  }
  // The state is the sink of the member from Begin on: no message is taken by Receive.
  auto state = std::make_shared<internal::WorkerState>(client.shared_from_this(), std::move(member),
                                                       options, static_cast<int>(servers));
  PHALANX_RETURN_IF_ERROR(state->Begin());
  return Worker(std::move(state));
}

int Worker::rank() const { return state_->member().rank(); }
int Worker::workers() const { return state_->member().world(); }
int Worker::servers() const { return state_->servers(); }
uint64_t Worker::life() const { return state_->member().life(); }
absl::Status Worker::status() const { return state_->status(); }
std::vector<Member> Worker::Members(absl::string_view role) const {
  const Membership& member = state_->member();
  return role.empty() ? member.Members() : member.Members(role);
}
Future<Done> Worker::BarrierAsync(BarrierGroup group, const BarrierOptions& options) const {
  return state_->Barrier(group, options);
}
absl::Status Worker::Leave() const { return state_->Leave(/*durable=*/true); }
absl::Status Worker::Quit() const { return state_->Leave(/*durable=*/false); }
absl::Status Worker::Fail() const { return state_->member().Fail(); }

absl::StatusOr<AnyTable> Worker::Open(absl::string_view name, Slicer slicer) const {
  PHALANX_ASSIGN_OR_RETURN(std::shared_ptr<internal::OpenTable> table,
                           state_->Open(name, std::move(slicer)));
  return AnyTable(state_, std::move(table));
}

absl::StatusOr<AnyTable> Worker::OpenAs(absl::string_view name, DType dtype, Slicer slicer) const {
  PHALANX_ASSIGN_OR_RETURN(AnyTable table, Open(name, std::move(slicer)));
  if (table.spec().dtype == dtype) return table;
  return absl::InvalidArgumentError(absl::StrCat("Open: table ", name, " has elements of type ",
                                                 DTypeName(table.spec().dtype), ", not ",
                                                 DTypeName(dtype)));
}

Future<Reply> Worker::Request(int server, int32_t head, absl::string_view body) const {
  return state_->Request(server, head, body);
}

Future<Done> AnyTable::Push(absl::Span<const Key> keys, const void* values, uint64_t bytes) const {
  return worker_->Push(*table_, keys, values, bytes);
}
Future<Done> AnyTable::Pull(absl::Span<const Key> keys, void* out, uint64_t bytes) const {
  return worker_->Pull(*table_, keys, out, bytes);
}
Future<Done> AnyTable::PushPull(absl::Span<const Key> keys, const void* values, void* out,
                                uint64_t bytes) const {
  return worker_->PushPull(*table_, keys, values, bytes, out, bytes);
}
Future<Done> AnyTable::PushPull(absl::Span<const Key> keys, const void* values, uint64_t pushed,
                                void* out, uint64_t bytes) const {
  return worker_->PushPull(*table_, keys, values, pushed, out, bytes);
}
Future<Done> AnyTable::Push(absl::Span<const Key> keys, const void* values, uint64_t bytes,
                            absl::Span<const uint32_t> lengths) const {
  return worker_->Push(*table_, keys, values, bytes, lengths);
}
Future<PulledRows> AnyTable::Pull(absl::Span<const Key> keys) const {
  return worker_->Pull(*table_, keys);
}
Future<PulledRows> AnyTable::PushPull(absl::Span<const Key> keys, const void* values,
                                      uint64_t bytes, absl::Span<const uint32_t> lengths) const {
  return worker_->PushPull(*table_, keys, values, bytes, lengths);
}
Future<Done> AnyTable::PushDense(const void* values, uint64_t bytes) const {
  return worker_->PushDense(*table_, values, bytes);
}
absl::StatusOr<Future<Done>> AnyTable::PushDenseWithin(const void* values, uint64_t bytes,
                                                       absl::Duration timeout) const {
  return worker_->PushDenseWithin(*table_, values, bytes, timeout);
}
Future<Done> AnyTable::PullDense(void* out, uint64_t bytes) const {
  return worker_->PullDense(*table_, out, bytes);
}
absl::Status AnyTable::AwaitRoom(absl::Duration timeout) const {
  return worker_->AwaitRoom("AwaitRoom", *table_, timeout);
}
absl::Status AnyTable::Clock() const { return worker_->Clock(*table_); }
uint64_t AnyTable::SkipPushed() const { return worker_->SkipPushed(*table_); }
const TableSpec& AnyTable::spec() const { return table_->spec; }
uint64_t AnyTable::clock() const { return worker_->ClocksOf(*table_).own; }
uint64_t AnyTable::min_clock() const { return worker_->ClocksOf(*table_).least; }

}  // namespace phalanx::ps
