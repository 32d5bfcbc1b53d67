// The objects that this node fetches: one want for each, however many clients ask, and one pull, or
// several of disjoint slices.
// Decides when to send the shard a Want, when to reserve memory, and when to start, cancel and
// report a pull. Pure: effects are values, which the store applies in order.
//
//   Want ──► [asked] ──Assign/Deliver──► [memory] ──OnMemory──► [pulling] ──OnPullDone──► complete
//               ▲                           │                       │  ▲
//               └──────── void, replaced ───┴───────────────────────┘  └─ failed: reported; the
//                                                                         next Assign continues
//                                                                         at the watermarks
// Invariants
//  1. At most one pull runs per slice: a replaced pull is cancelled, and the next one starts after
//     OnPullDone. So a slice has one writer.
//  2. A pull starts when all its memory is reserved; no memory is held while the pull waits for it.
//  3. Bytes of one generation are fetched at a time; another generation begins with other memory.
//  4. A want is open at the shard (`want_open`) exactly while the object is wanted here and no
//     Deliver has answered the want.
//  5. A pull that has waited for memory for too long is `parked`: its shard knows this, names no
//     sender, and assigns no receiver to this node. The pull keeps its place in the queue; when it
//     gets memory, the node asks the shard for a sender.
//
// Thread rule: no thread, lock, clock or I/O inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_PULLS_PULL_MANAGER_H_
#define PHALANX_OBJECT_STORE_PULLS_PULL_MANAGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/net/pull/pull.h"
#include "src/object_store/objects/copy_traits.h"

namespace phalanx::object_store {

// The sender of a pull, as the shard assigned it.
struct PullSource {
  PlanId plan = 0;
  NodeKey sender;
  net::Address address;
  uint64_t slices = 1;
};

// The generation that is fetched.
struct PullTarget {
  Generation generation;
  uint64_t size_bytes = 0;
  int slices = 1;
  CopyTraits traits = {};
};

// ---- effects; each names its object
struct ReportToShard {
  ObjectId id;
  v1::NodeMessage message;
};
// Reserve memory for the target, then call OnMemory with this token.
struct ReserveMemory {
  ObjectId id;
  uint64_t token;
  PullTarget target;
};
// The memory is not needed any more: end the wait, or release the memory when it is granted.
struct ForgetMemory {
  ObjectId id;
  uint64_t token;
};
// Begin a pull into the copy of this generation; call OnPullDone at its end.
struct StartPull {
  ObjectId id;
  Generation generation;
  PullSource source;
  uint64_t number;  // of the pull; never 0 or used before
};
// OnPullDone follows.
struct CancelPull {
  uint64_t number;
};
// Write these bytes, the whole object, into the copy of this generation.
struct FillCopy {
  ObjectId id;
  Generation generation;
  std::string bytes;
};
// The partial copy is dropped: streaming readers get the error `why`.
struct DropPartial {
  ObjectId id;
  Generation generation;
  absl::Status why;
};
// The copy has every byte.
struct CompleteCopy {
  ObjectId id;
  Generation generation;
  bool keep;
};
// Gets that wait for the object end with this error.
struct EndGets {
  ObjectId id;
  absl::Status why;
};
using PullEffect = std::variant<ReportToShard, ReserveMemory, ForgetMemory, StartPull, CancelPull,
                                FillCopy, DropPartial, CompleteCopy, EndGets>;

// How a pull ended, and how far the copy has come.
struct PullEnd {
  uint64_t number = 0;
  net::PullOutcome outcome;
  bool complete = false;
  std::vector<uint64_t> watermarks;
};

class PullManager {
 public:
  PullManager();
  ~PullManager();

  // The effects since the last call, in order.
  std::vector<PullEffect> TakeEffects();
  // Takes the vector back, for the next effects: each turn has some, so it would allocate another.
  void Reuse(std::vector<PullEffect> applied);

  // ---- wants of this node
  // Clients here want the object. `near`: preferably from the node that created this object
  // (v1::Want.near_id). `name`: the object's, for the tools. Idempotent.
  void Want(const ObjectId& id, const ObjectId& near = ObjectId(), const ObjectName& name = {},
            const Scope& scope = {});
  // No client wants the object any more. The bytes that were fetched so far are dropped, unless the
  // node fetches the object on its own account.
  void Unwant(const ObjectId& id);
  // The shard's Fetch: the node wants the object on its own account until the copy is complete. If
  // the node gives it up, an Unwant with this number refuses the order.
  void Fetch(const ObjectId& id, bool keep, PlanId order);
  // If a Deliver completes the object, the node confirms the copy under this plan.
  void ConfirmDelivery(const ObjectId& id, PlanId plan);
  // Repeats the open want, if there is one: the shard may consider it answered.
  void AskAgain(const ObjectId& id);
  // The object arrived by another way: ends a Fetch.
  void EndFetch(const ObjectId& id);
  // The same if this is the last order.
  void EndOrder(const ObjectId& id, PlanId order);
  bool Fetches(const ObjectId& id) const;
  // The generations in scopes of this name, with a number of at most `scope.number`, that are being
  // fetched; in the order of their ids.
  std::vector<std::pair<ObjectId, Generation>> TargetsIn(const Scope& scope) const;
  // Returns true if no pull of the object, or of some of its slices, runs and none waits for
  // memory.
  bool Idle(const ObjectId& id) const;

  // ---- from the shard; malformed and late messages are ignored. The time to live of the object is
  // counted from `now`.
  void OnAssign(const ObjectId& id, const v1::Assign& assign, Instant now);
  void OnDeliver(const ObjectId& id, const v1::Deliver& deliver, Instant now);
  // Gone(VOID), or a Verdict by which a pulled copy is dropped.
  void OnVoid(const ObjectId& id, const Generation& generation, const absl::Status& why);
  // Gone(REFUSED): the want with this number has ended; 0 means the open one.
  void OnRefused(const ObjectId& id, uint64_t want, const absl::Status& why);
  void OnDeleted(const ObjectId& id, const Generation& generation, const absl::Status& why);

  // ---- from the store
  // The pull has waited for the memory with this token for too long: parks it until OnMemory.
  void OnNoRoom(const ObjectId& id, uint64_t token);
  // Another request needs the memory of this partial copy: drops the copy. The object is fetched
  // from the start when the shard assigns a sender. Returns false, and changes nothing, while a
  // pull of it runs or is about to start.
  bool Yield(const ObjectId& id, const Generation& generation);
  // The copy exists with its buffer (OK), or memory could not be reserved. Returns false if the
  // pull does not wait for this token any more: the copy must not be made then.
  bool OnMemory(const ObjectId& id, uint64_t token, const absl::Status& status);
  // Returns true while a pull waits for the memory with this token.
  bool AwaitsMemory(const ObjectId& id, uint64_t token) const;
  void OnPullDone(const ObjectId& id, PullEnd end);

  // ---- registration
  // A new session with the shard begins. Returns the wants to register, in the order of ids. Plans
  // of the old session do not count any more.
  std::vector<v1::RegisterWant> Register(int shard, int num_shards);
  // The sender of the running pull of this generation, or of the first of several; nullopt if none
  // runs.
  std::optional<NodeKey> RunningSender(const ObjectId& id, const Generation& generation) const;
  // Returns true if a pull runs that is not of all slices.
  bool PullsInParts(const ObjectId& id) const;

  // ---- looking
  struct Running {
    ObjectId id;
    Generation generation;
    PlanId plan;
    uint64_t number;
  };
  // In order of id and number.
  std::vector<Running> RunningPulls() const;
  size_t running() const { return running_; }
  // The generation that the shard named last for the object; nullptr if it has named none.
  const PullTarget* Target(const ObjectId& id) const;
  bool WaitsForMemory(const ObjectId& id) const;
  bool Wants(const ObjectId& id) const;
  // In the order of ids, without objects that only the node itself wants.
  std::vector<ObjectId> WantedByClients() const;
  size_t size() const { return pulls_.size(); }

  absl::Status CheckInvariants() const;

 private:
  struct Transfer;
  struct Pull;
  using PullMap = absl::flat_hash_map<ObjectId, std::unique_ptr<Pull>>;

  Pull* FindPull(const ObjectId& id) const;
  Pull& FindOrMake(const ObjectId& id);
  template <typename Effect>
  void Do(Effect effect) {
    effects_.push_back(std::move(effect));
  }
  v1::NodeMessage& Send(const ObjectId& id);
  void SendWant(const ObjectId& id, Pull& pull);
  void SendUnwant(const ObjectId& id, Pull& pull);
  void Report(const ObjectId& id, const Transfer& transfer, const PullEnd& end, bool complete,
              bool keep);
  // Sends the Want again, now with no_room_for.
  void Park(const ObjectId& id, Pull& pull);
  void Withdraw(const ObjectId& id, const Generation& generation, absl::string_view why);
  void SetTarget(const ObjectId& id, Pull& pull, PullTarget target);
  void DropTarget(const ObjectId& id, Pull& pull, const absl::Status& why);
  // Cancels the pulls that fetch any of these slices.
  void Stop(Pull& pull, uint64_t slices);
  void StartNext(const ObjectId& id, Pull& pull);
  void Finish(const ObjectId& id, Pull& pull);
  // The object is not wanted any more: ends everything except a pull that has not ended yet.
  void GiveUp(const ObjectId& id, Pull& pull, const absl::Status& why);
  void EraseIfDone(const ObjectId& id);

  PullMap pulls_;
  size_t running_ = 0;
  uint64_t next_token_ = 1;
  uint64_t next_number_ = 1;
  uint64_t next_want_ = 1;
  std::vector<PullEffect> effects_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_PULL_MANAGER_H_
