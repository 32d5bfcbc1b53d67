// The vocabulary of the store: its options, and the arguments and results of its calls. Values; any
// thread.
#ifndef PHALANX_OBJECT_STORE_STORE_STORE_TYPES_H_
#define PHALANX_OBJECT_STORE_STORE_STORE_TYPES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "phalanx/scope.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/ids/version.h"
#include "src/common/time/instant.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store {

// The node accepts this many requests of one client; see local::kMaxRequestsUnderWay.
inline constexpr size_t kMaxRequestsPerClient = 1 << 16;

// What a node and the object's shard keep for an object beside its bytes and metadata.
inline constexpr uint64_t kRecordBytes = 1024;

struct StoreOptions {
  NodeKey self;
  std::string name;
  uint64_t capacity_bytes = 0;
  // Each object counts this many bytes of the capacity beside its bytes and metadata, so that the
  // number of small objects is limited. kRecordBytes in a node.
  uint64_t record_bytes = 0;
  // How often Progress is sent while pulls run.
  absl::Duration progress_interval = absl::Milliseconds(250);
  // A pull that has not been connected for so long is reported, and continues.
  absl::Duration connect_patience = absl::Milliseconds(250);
  // Copies, wants and tombstones that one turn of a registration sends.
  size_t registered_per_turn = 4096;
  // Tombstones kept for registrations.
  size_t max_tombstones = 1 << 16;
  // Ended scopes that are remembered.
  size_t max_ended_scopes = 1 << 16;
  // How long a receiver waits here for an object that is about to begin, unless the receiver's own
  // patience is shorter; and how many receivers wait at a time.
  absl::Duration serve_patience = absl::Milliseconds(200);
  size_t max_waiting_serves = 4096;
  // A pull that waits longer for its memory is parked: see PullManager::OnNoRoom.
  absl::Duration memory_patience = absl::Milliseconds(200);
  // How long the node keeps a want of its own for an object that no node sends.
  absl::Duration fetch_patience = absl::Minutes(1);
  // Requests of one client that wait at a time. Further ones end with ResourceExhausted.
  size_t max_requests_per_client = kMaxRequestsPerClient;
  // How long a reference that left this node in a message is held, unless it is claimed.
  absl::Duration transit_patience = absl::Seconds(60);
  // How long the objects that a copy referred to are held after the copy is gone, if they belong to
  // another shard than the copy: that shard can learn that this hold has ended before it learns of
  // the holds of other nodes with copies.
  absl::Duration reference_patience = absl::Seconds(2);
  size_t max_holds_per_client = 1 << 20;
  size_t max_transits = 1 << 20;
};

using ClientId = uint64_t;
// A client's request that has not ended, a writer's grant, a reader's pin. A store never uses a
// number twice.
using RequestId = uint64_t;
using WriterId = uint64_t;
using PinId = uint64_t;

// Bytes of the capacity that count as used until this is destroyed, on the control loop. The holder
// gets that much memory without waiting.
class Reservation {
 public:
  virtual ~Reservation() = default;
  // The bytes that have not been taken out of it.
  virtual uint64_t bytes() const = 0;
};

struct PutOptions {
  ObjectId id;
  std::string metadata;
  int slices = 1;
  // Set if a reduction's root computes the object: its version, the ids of its sources one after
  // the other, and the reduction that was requested; see AnnounceCreate and ObjectInfo in the
  // protocol.
  SlotVersion version = {};
  std::string reduced_from = {};
  // Freed when no node holds it. The creator holds it before it creates it.
  bool owned = false;
  // Ids of the objects that the bytes refer to, one after the other. Every node with a copy holds
  // them. At most kMaxReferences.
  std::string refers_to = {};
  std::string asked_for = {};
  // Kept with the object, on every node that has a copy.
  ObjectName name = {};
  // The shard deletes the object when so much time has passed since the adoption of the generation.
  // More than kMaxTtl is infinite. InvalidArgument if not positive.
  absl::Duration ttl = absl::InfiniteDuration();
  // Of an object that several nodes make together, a slice each: the generation that the shard has
  // named. If it is not valid, this node mints one. Aborted if bytes of it are here already.
  Generation generation = {};
  // The memory of a Create. If null, the Create waits for its turn.
  std::shared_ptr<Reservation> memory = nullptr;
  // Ends only after the shard has adopted the generation, or another one instead.
  bool wait_for_adoption = false;
  // Primary copies on so many different hosts are wanted, at most kMaxCopies; 0: no number of them.
  // An object that exists keeps its number.
  uint32_t copies = 0;
  // A Put ends only when the copies are there, as Broadcast with BroadcastOptions::copies does.
  bool wait_for_copies = false;
  // The object is freed when the scope ends. NotFound if it has ended.
  Scope scope = {};
  // For memory and adoption. ResourceExhausted if it passes without memory.
  Instant deadline = Instant::Infinite();
};
struct PutResult {
  // Another generation of the same size was complete before; the new bytes were dropped.
  bool already_existed = false;
  Generation generation;
};
// Errors: AlreadyExists (another generation of another size is complete), ResourceExhausted,
// InvalidArgument, Cancelled.
using PutDone = absl::AnyInvocable<void(absl::StatusOr<PutResult>)>;

struct WriteGrant {
  WriterId writer = 0;
  Generation generation;
  std::shared_ptr<MemoryBlock> block;
  // Over the block, for a writer in this process: publishing to it does what Publish does.
  std::shared_ptr<net::TransferBuffer> buffer;
};
using CreateDone = absl::AnyInvocable<void(absl::StatusOr<WriteGrant>)>;

// A copy that a reader has pinned until Release(pin).
struct View {
  PinId pin = 0;
  Generation generation;
  std::string metadata;
  std::shared_ptr<net::TransferBuffer> buffer;  // its bytes; complete unless streaming
  std::shared_ptr<MemoryBlock> block;
  // The ids of the sources, one after the other, if a reduction computed the object.
  std::string reduced_from = {};
};

struct GetOptions {
  ObjectId id;
  // DeadlineExceeded if it passes. At or before now: the Get succeeds only if a complete copy is
  // here.
  Instant deadline = Instant::Infinite();
  // Answers as soon as a generation and its size are known. The bytes are provisional until the
  // buffer is complete: if the generation dies, the store calls `on_void`, the reader discards what
  // it has read, and the Get starts again with a new view.
  bool streaming = false;
  // An object whose creator is the preferred sender: the caller is one of many that get this object
  // and others of the same node (see v1::Want). Nil: no preference.
  ObjectId near = {};
  // Ends with DataLoss if the last copy of the object is lost, instead of waiting for a new Put.
  bool fail_when_lost = false;
  // Shown by the tools, also before the object exists.
  ObjectName name = {};
  // The scope of the object, if the caller knows it: the Get ends with NotFound when that has
  // ended.
  Scope scope = {};
};
// Errors: DeadlineExceeded, NotFound ("deleted"), ResourceExhausted (the node cannot make room
// before the deadline), DataLoss (`fail_when_lost`), Cancelled, InvalidArgument, Unavailable (the
// store shuts down).
struct GetEvents {
  absl::AnyInvocable<void(absl::StatusOr<View>)> on_view;
  // Streaming only. The reader still has to release the view's pin.
  absl::AnyInvocable<void(const absl::Status& why)> on_void;
};

struct ObjectStat {
  bool known = false;
  bool deleted = false;
  bool complete = false;        // on any node, this one included
  bool local_complete = false;  // here
  uint64_t size_bytes = 0;
  std::string metadata;
  std::string reduced_from;
  uint32_t complete_copies = 0;
  uint32_t partial_copies = 0;
  uint32_t waiting = 0;
  uint32_t conflicts = 0;
  bool owned = false;
  ObjectName name;
  uint32_t holders = 0;  // nodes that hold it
  // Nodes that join later get a copy, too.
  bool sticky = false;
  // The time to live that is left; infinite if there is no limit.
  absl::Duration ttl = absl::InfiniteDuration();
  // Of the nodes that the caller named: how many are in the cluster, have a complete copy, and have
  // no room for one; and the bytes that all of them have together.
  uint32_t named = 0;
  uint32_t named_complete = 0;
  uint32_t named_without_room = 0;
  uint64_t named_bytes = 0;
  // Primary copies that are wanted, each on another host (0: no number of them), and the number of
  // hosts that have one.
  uint32_t copies_wanted = 0;
  uint32_t copies_there = 0;
};

// Which nodes get a copy.
struct BroadcastOptions {
  // Names, or "*".
  std::vector<std::string> nodes;
  // Also nodes that join later, until the object is deleted or the broadcast is stopped.
  bool sticky = false;
  // Stops a sticky broadcast instead.
  bool stop = false;
  // Not 0: primary copies on so many hosts instead, and `nodes`, `sticky` and `stop` are ignored.
  uint32_t copies = 0;
};

// A reference that has left a node in a message: the node, and its number for the reference.
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
  uint64_t held = 0;       // objects that this node holds
  uint64_t transits = 0;   // references in messages from here
  uint64_t unclaimed = 0;  // transits that were never claimed, since the start
  uint64_t cut_short = 0;  // transits that ended early, because there were too many
};

// The reservation, or ResourceExhausted.
using ReserveDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Reservation>>)>;

// A block that belongs to no object; it counts until `counted` is destroyed on the control loop.
struct ScratchBlock {
  std::shared_ptr<MemoryBlock> block;
  std::shared_ptr<Reservation> counted;
};
using ScratchDone = absl::AnyInvocable<void(absl::StatusOr<ScratchBlock>)>;

using StatusDone = absl::AnyInvocable<void(absl::Status)>;
using StatDone = absl::AnyInvocable<void(absl::StatusOr<ObjectStat>)>;
// The number of nodes, or of hosts.
using NodesDone = absl::AnyInvocable<void(absl::StatusOr<int>)>;

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_STORE_TYPES_H_
