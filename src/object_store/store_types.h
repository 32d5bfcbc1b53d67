// The vocabulary of the store: its options, and the arguments and results of its calls. Values; any
// thread.
#ifndef PHALANX_OBJECT_STORE_STORE_TYPES_H_
#define PHALANX_OBJECT_STORE_STORE_TYPES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/net/transfer_buffer.h"
#include "src/object_store/shared_memory.h"

namespace phalanx::object_store {

// The node keeps so many requests of one client; see local::kMaxRequestsUnderWay.
inline constexpr size_t kMaxRequestsPerClient = 1 << 16;

// What a node and the object's shard keep for an object beside its bytes and metadata.
inline constexpr uint64_t kRecordBytes = 1024;

struct StoreOptions {
  NodeKey self;
  std::string name;
  uint64_t capacity_bytes = 0;
  // Each object counts so much of the capacity, beside its bytes and metadata: without it there is
  // no limit to the number of small ones. kRecordBytes in a node.
  uint64_t record_bytes = 0;
  // How often Progress is told while pulls are in flight.
  absl::Duration progress_interval = absl::Milliseconds(250);
  // Copies, wants and tombstones that a new session is told in one turn.
  size_t registered_per_turn = 4096;
  // Tombstones remembered for registration.
  size_t max_tombstones = 1 << 16;
  // How long a receiver is kept waiting for an object that is about to begin here, unless it has
  // less patience itself, and how many are.
  absl::Duration serve_patience = absl::Milliseconds(200);
  size_t max_waiting_serves = 4096;
  // How long a shard counts on a pull that still waits for its memory here.
  absl::Duration memory_patience = absl::Milliseconds(200);
  // How long the node goes on wanting, on its own account, what nobody sends it.
  absl::Duration fetch_patience = absl::Minutes(1);
  // Requests of one client that wait at a time; more are refused with ResourceExhausted.
  size_t max_requests_per_client = kMaxRequestsPerClient;
  // How long what left this node in a message is held, unless it is claimed.
  absl::Duration transit_patience = absl::Seconds(60);
  // How long what a copy here referred to is held after the copy is gone, where it is another
  // shard's: that may hear of this sooner than of those who have the object, too.
  absl::Duration reference_patience = absl::Seconds(2);
  size_t max_holds_per_client = 1 << 20;
  size_t max_transits = 1 << 20;
};

using ClientId = uint64_t;
// A client's request that has not ended, a writer's grant, a reader's pin: numbers never reused
// within a store's life.
using RequestId = uint64_t;
using WriterId = uint64_t;
using PinId = uint64_t;

// Bytes of the capacity that are counted as used until this goes, on the control loop: memory that
// its holder may have at once.
class Reservation {
 public:
  virtual ~Reservation() = default;
  // What is left of it.
  virtual uint64_t bytes() const = 0;
};

struct PutOptions {
  ObjectId id;
  std::string metadata;
  int slices = 1;
  // Of what a reduction's root computes: its version, the ids of its sources one after the other,
  // and what was asked for; see AnnounceCreate and ObjectInfo in the protocol.
  Generation version = {};
  std::string reduced_from = {};
  // Freed when nobody holds it. Who creates it holds it before.
  bool owned = false;
  // Ids of the objects that the bytes refer to, one after the other: held by every node that has a
  // copy. At most kMaxReferences.
  std::string refers_to = {};
  std::string asked_for = {};
  // Of what several nodes make together, each a slice: the shard has named it. Not valid: this node
  // mints one. Aborted when bytes of it are here already.
  Generation generation = {};
  // Where a Create's memory comes from; null: it waits for its turn.
  std::shared_ptr<Reservation> memory = nullptr;
  // End only when the shard has adopted the generation (or said that another one already is).
  bool wait_for_adoption = false;
  // How long to wait for memory (and adoption). ResourceExhausted when it passes without memory.
  Instant deadline = Instant::Infinite();
};
struct PutResult {
  // Another generation of the same size was complete already; the new bytes were dropped.
  bool already_existed = false;
  Generation generation;
};
// AlreadyExists: another generation of another size is complete. ResourceExhausted,
// InvalidArgument, Cancelled.
using PutDone = absl::AnyInvocable<void(absl::StatusOr<PutResult>)>;

struct WriteGrant {
  WriterId writer = 0;
  Generation generation;
  std::shared_ptr<MemoryBlock> block;
  // Over the block, for who writes in this process: publishing to it is what Publish does.
  std::shared_ptr<net::TransferBuffer> buffer;
};
using CreateDone = absl::AnyInvocable<void(absl::StatusOr<WriteGrant>)>;

// What a reader holds until Release(pin).
struct View {
  PinId pin = 0;
  Generation generation;
  std::string metadata;
  std::shared_ptr<net::TransferBuffer> buffer;  // its bytes; complete unless streaming
  std::shared_ptr<MemoryBlock> block;
  // Of the result of a reduction: the ids of its sources one after the other.
  std::string reduced_from = {};
};

struct GetOptions {
  ObjectId id;
  // DeadlineExceeded when it passes; at or before now: only what is here already is answered.
  Instant deadline = Instant::Infinite();
  // Answer as soon as a generation and its size are known; bytes are provisional until the buffer
  // is complete. The store calls `on_void` when what was read must be forgotten (generation died);
  // the request then starts again with a new view.
  bool streaming = false;
  // Who gets it is one of many that get this object and others alike: it is best had from the node
  // that made this one (v1::Want has more). Nil: from whoever is best.
  ObjectId near = {};
  // End with DataLoss when the object was there and its last copy is lost, rather than wait for
  // somebody to put it again.
  bool fail_when_lost = false;
};
// Errors: DeadlineExceeded, NotFound ("deleted"), ResourceExhausted (larger than what the node can
// make room for before the deadline), DataLoss (`fail_when_lost`), Cancelled, InvalidArgument,
// Unavailable (the store shuts down).
struct GetEvents {
  absl::AnyInvocable<void(absl::StatusOr<View>)> on_view;
  // Streaming only; the view's pin is still to be released.
  absl::AnyInvocable<void(const absl::Status& why)> on_void;
};

struct ObjectStat {
  bool known = false;
  bool deleted = false;
  bool complete = false;        // somewhere in the cluster, here included
  bool local_complete = false;  // here
  uint64_t size_bytes = 0;
  std::string metadata;
  std::string reduced_from;
  uint32_t complete_copies = 0;
  uint32_t partial_copies = 0;
  uint32_t waiting = 0;
  uint32_t conflicts = 0;
  bool owned = false;
  uint32_t holders = 0;  // nodes that hold it
  // Nodes that come get a copy, too.
  bool sticky = false;
  // Of the nodes that were named: those that are there, that have it complete, and that have no
  // room for it; and what has come to all of them together.
  uint32_t named = 0;
  uint32_t named_complete = 0;
  uint32_t named_without_room = 0;
  uint64_t named_bytes = 0;
};

// Who is to have a copy.
struct BroadcastOptions {
  // Names, or "*".
  std::vector<std::string> nodes;
  // Also those that come later, until the object is deleted or that is stopped.
  bool sticky = false;
  // Instead: ends that.
  bool stop = false;
};

// A reference that has left a node: where from, and under which number of its.
struct TransitMark {
  NodeKey node;
  uint64_t number = 0;
};

struct StoreStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;    // reserved for objects, complete or not
  uint64_t pinned_bytes = 0;  // primary copies and copies that readers or pushes hold
  uint64_t objects = 0;
  uint64_t clients = 0;
  uint64_t pins = 0;
  uint64_t waiting_gets = 0;
  uint64_t waiting_for_memory = 0;
  uint64_t evictions = 0;
  uint64_t pulls_started = 0;
  uint64_t pulls_failed = 0;
  uint64_t conflicts = 0;
  uint64_t held = 0;       // objects that somebody here holds
  uint64_t transits = 0;   // references on their way from here
  uint64_t unclaimed = 0;  // of those, ever: not claimed in time
  uint64_t cut_short = 0;  // ended before their time, because there were too many
};

// Ends with the memory that was asked for.
using ReserveDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Reservation>>)>;

// A block that is no object's, counted until `counted` goes, on the control loop.
struct ScratchBlock {
  std::shared_ptr<MemoryBlock> block;
  std::shared_ptr<Reservation> counted;
};
using ScratchDone = absl::AnyInvocable<void(absl::StatusOr<ScratchBlock>)>;

using StatusDone = absl::AnyInvocable<void(absl::Status)>;
using StatDone = absl::AnyInvocable<void(absl::StatusOr<ObjectStat>)>;
// The number of nodes.
using NodesDone = absl::AnyInvocable<void(absl::StatusOr<int>)>;

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_TYPES_H_
