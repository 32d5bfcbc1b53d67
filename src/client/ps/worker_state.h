// WorkerState: what a Worker and its tables share: a WorkerCore, the messages of its member, and
// the futures of calls that are under way.
//
//   Table ──► WorkerCore ──► MemberSends ──► node ──► servers
//                 ▲   ▲                                  │
//   futures ◄─────┤   └─────── ObjectReads ◄── store     │
//                 └──────────── MemberSink ◄─────────────┘
//
// Everything here is under the connection's lock: whichever thread drives the connection takes in
// what the servers have answered, and ends the futures. A push of all rows of an object table is
// put into the store without the lock; other pushes and ends of clocks of the table wait meanwhile.
// Its objects are owned: what the core has not freed is released when the worker ends. Any thread.
#ifndef PHALANX_CLIENT_PS_WORKER_STATE_H_
#define PHALANX_CLIENT_PS_WORKER_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "phalanx/ps.h"
#include "src/client/jobs/member_call.h"
#include "src/client/ps/barriers/barriers.h"
#include "src/client/ps/member_sends.h"
#include "src/client/ps/object_reads.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {

// A table that the worker has opened.
struct OpenTable {
  uint32_t number = 0;
  TableSpec spec;
  // All rows travel as objects.
  bool pulls_objects = false;
  bool pushes_objects = false;
  Slicer slicer;              // with Split::kOwn
  std::vector<Key> all_keys;  // of a dense table, once they were needed; under the lock
};

class WorkerState final : public phalanx::internal::MemberSink {
 public:
  WorkerState(std::shared_ptr<Client> client, Membership member, const Options& options,
              int servers);
  // Without Leave, the others see that the worker has died. Futures under way end with Cancelled.
  ~WorkerState() override;

  // Takes the member's messages from here on, and waits until all servers have welcomed this life.
  absl::Status Begin();

  absl::StatusOr<std::shared_ptr<OpenTable>> Open(absl::string_view name, Slicer slicer);
  // `bytes`, and `pushed`, are all rows of the keys.
  Future<phalanx::Done> Push(const OpenTable& table, absl::Span<const Key> keys, const void* values,
                             uint64_t bytes);
  Future<phalanx::Done> Pull(const OpenTable& table, absl::Span<const Key> keys, void* out,
                             uint64_t bytes);
  Future<phalanx::Done> PushPull(const OpenTable& table, absl::Span<const Key> keys,
                                 const void* values, uint64_t pushed, void* out, uint64_t bytes);
  // The same of a table with TableSpec::lengths.
  Future<phalanx::Done> Push(const OpenTable& table, absl::Span<const Key> keys, const void* values,
                             uint64_t bytes, absl::Span<const uint32_t> lengths);
  Future<PulledRows> Pull(const OpenTable& table, absl::Span<const Key> keys);
  Future<PulledRows> PushPull(const OpenTable& table, absl::Span<const Key> keys,
                              const void* values, uint64_t pushed,
                              absl::Span<const uint32_t> lengths);
  Future<phalanx::Done> PushDense(OpenTable& table, const void* values, uint64_t bytes);
  // Waits for memory of the node only so long; ResourceExhausted, with nothing pushed or refused.
  absl::StatusOr<Future<phalanx::Done>> PushDenseWithin(OpenTable& table, const void* values,
                                                        uint64_t bytes, absl::Duration timeout);
  Future<phalanx::Done> PullDense(OpenTable& table, void* out, uint64_t bytes);
  // Until the table may keep more, and no other thread puts a push of it.
  absl::Status AwaitRoom(const char* verb, const OpenTable& table, absl::Duration timeout);
  absl::Status Clock(const OpenTable& table);
  uint64_t SkipPushed(const OpenTable& table);
  Future<Reply> Request(int server, int32_t head, absl::string_view body);

  // The clocks of this worker, and the least of all.
  struct ClocksSeen {
    uint64_t own = 0;
    uint64_t least = 0;
  };
  ClocksSeen ClocksOf(const OpenTable& table);
  Future<phalanx::Done> Barrier(BarrierGroup group, const BarrierOptions& options) {
    return barriers_.Begin(group, options, patience_);
  }
  // `durable`: with all pushes in snapshots.
  absl::Status Leave(bool durable);
  absl::Status status() const { return member_.status(); }

  const Membership& member() const { return member_; }
  int servers() const { return servers_; }

  // ---- MemberSink; lock held
  void OnMessage(const Message& message) override;
  void OnMember(const Member& member) override;
  void OnEnd(const absl::Status& why) override;

 private:
  using Ticket = WorkerCore::Ticket;
  struct AnyCall;
  template <typename T>
  struct TicketCall;
  struct ProbeTimer;

  // What the program gives to a call: rows, and bytes of memory for what it has of the two.
  struct Given {
    uint64_t rows = 0;
    std::optional<uint64_t> pushed = {};
    std::optional<uint64_t> pulled = {};
    absl::Status sliced = {};  // an error of the table's slicer
    // A call of a table with TableSpec::lengths; `lengths` are those of what is pushed.
    bool has_lengths = false;
    absl::Span<const Key> keys = {};
    absl::Span<const uint32_t> lengths = {};
  };
  static absl::Status CheckLengths(const TableSpec& spec, const Given& given);
  // OK if the memory is that of the rows.
  static absl::Status CheckMemory(const TableSpec& spec, const Given& given);
  // The server of each key; nothing without a slicer.
  struct Sliced {
    absl::Status status;
    std::vector<int32_t> servers;
  };
  static Sliced Slice(const OpenTable& table, absl::Span<const Key> keys);
  // Makes a call of the core under the lock. With `awaited` all of it is sent, and nothing is held
  // back for a larger batch.
  template <typename T = phalanx::Done>
  Future<T> Call(const char* verb, const OpenTable& table, const Given& given, bool awaited,
                 absl::FunctionRef<absl::StatusOr<Ticket>()> make);
  // Calls `make` under the lock: with OK, when a push has room, or with the error of the call,
  // which the core knows, too, if it is a push.
  void Enter(const char* verb, const OpenTable& table, const Given& given,
             absl::FunctionRef<void(const absl::Status&)> make);
  // An error: `timeout`, if it is given, passed without memory for the push.
  absl::StatusOr<Future<phalanx::Done>> PushObjects(const OpenTable& table, const void* values,
                                                    uint64_t bytes,
                                                    std::optional<absl::Duration> timeout);
  // Puts the parts of a push, and waits for them. Nothing: `timeout` passed without memory.
  std::optional<absl::Status> PutParts(const OpenTable& table, const WorkerCore::DensePush& push,
                                       const void* values, std::optional<absl::Duration> timeout);

  // Lock held.
  // The core has made the call, or refused it.
  void Begun(const std::shared_ptr<AnyCall>& call, const absl::StatusOr<Ticket>& ticket);
  // Sends further pieces of the call, if it was begun. Returns false when all are made.
  bool Cut(Ticket ticket, bool awaited);
  void DrainObjects();
  void ReleaseObjects(absl::Span<const ObjectId> ids);
  // The error of a call, with the table, the worker and the clock.
  absl::Status Named(const char* verb, const OpenTable& table, const absl::Status& why) const;
  absl::Span<const Key> AllKeys(OpenTable& table) const;
  // The call is ended by the program: nothing is written to its memory any more.
  void Forget(Ticket ticket);
  // Sends what the core wants to send, and ends the futures of what has ended.
  void Drain();
  void Probe();
  // Kills the process if the launch has ordered it at this point. Without the lock.
  void DieIfDeclared(phalanx::internal::DeathPoint::Kind point, uint64_t clock);
  // The node has no memory for what is pushed or pulled.
  void OnFull();

  const std::shared_ptr<Client> client_;
  const std::shared_ptr<phalanx::internal::Connection> connection_;
  const Membership member_;
  const std::string server_role_;
  const absl::Duration patience_;
  const int servers_;

  WorkerCore core_;
  Barriers barriers_;
  std::shared_ptr<MemberSends> sends_;
  std::shared_ptr<ObjectReads> reads_;
  absl::flat_hash_set<ObjectId> pushed_;  // objects that this worker holds
  std::map<Ticket, std::shared_ptr<AnyCall>> under_way_;
  std::shared_ptr<ProbeTimer> probe_timer_;  // for the next Probe; null: none runs
  std::optional<Instant> asked_for_memory_;
  absl::Status over_;  // not OK: the member has ended
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_WORKER_STATE_H_
