// The store of one node: objects, pulls and pushes, memory, and the clients' requests. The meeting
// point of the directory's decisions, the data plane's bytes and the clients' calls.
//
//     clients (local_service, simulation, LocalCluster)
//        │ Put Create Publish Seal Get Release Delete ...        (this interface)
//     ┌──▼───────────────────────────────────────┐
//     │ Store: object_table · eviction · clients  │── NodeMessage ──► ShardChannel
//     │        pull_manager · push_manager        │── StartPull ────► DataPlane
//     └───────────────────────────────────────────┘── Allocate ─────► SharedMemory
//
// Thread rule: everything, callbacks too, on the control loop; callbacks never run inside a call.
// Owned by the node. The pieces that decide (object_table, eviction, pull_manager, push_manager)
// are pure; this class carries their effects to the seams.
#ifndef PHALANX_OBJECT_STORE_STORE_H_
#define PHALANX_OBJECT_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/net/data_plane.h"
#include "src/object_store/shard_channel.h"
#include "src/object_store/shared_memory.h"
#include "src/object_store/store_types.h"

namespace phalanx::object_store {

class Store {
 public:
  // All of them outlive the store, which handles the shards' messages about objects and registers
  // its objects at `channel`. The data plane's ServeHandler calls Serve().
  Store(StoreOptions options, Executor& executor, SharedMemory& memory, ShardChannel& channel);
  ~Store();
  void SetDataPlane(net::DataPlane* data_plane);

  // ---- clients
  ClientId OpenClient();
  // Frees what the client held. `clean`: it has said goodbye and can see no memory any more;
  // otherwise blocks that it had mapped are condemned, never recycled. Its requests end without a
  // callback; its unsealed generations end with it.
  void CloseClient(ClientId client, bool clean);

  // A whole object at once. `bytes` has at most kOwnFileBytes.
  RequestId Put(ClientId client, PutOptions options, std::string bytes, PutDone done);
  // Memory of `size` bytes to write into; announced at once, so that receivers stream what is
  // published. For writers through `WriteGrant::block` (mapped by the client, or written by the rim
  // on its behalf).
  RequestId Create(ClientId client, PutOptions options, uint64_t size, CreateDone done);
  // Bytes [0, n) are final. InvalidArgument when n shrinks or passes the size; NotFound for an
  // unknown writer.
  absl::Status Publish(ClientId client, WriterId writer, uint64_t n);
  // All bytes are final and the client cannot write any more.
  void Seal(ClientId client, WriterId writer, bool wait_for_adoption, PutDone done);
  absl::Status Abort(ClientId client, WriterId writer);
  // Says once more that the generation is here, and what version it is of: a shard that is new to
  // it had only heard of the copy. Nothing is said of one that is gone.
  void AnnounceAgain(const ObjectId& id, const Generation& generation, const Generation& version);

  RequestId Get(ClientId client, GetOptions options, GetEvents events);
  // Calls back now whom a task of its own would have called: for who has made several calls and is
  // about to send their answers.
  void HandOutAnswers();
  // A Get's, Create's or Broadcast's callback is not called any more; what it would have got is
  // released.
  void Cancel(ClientId client, RequestId request);
  // NotFound for a pin that the client does not hold. `recycle` false: the client cannot vouch that
  // nobody sees the pages any more (it was forked meanwhile), so the block is condemned, never
  // reused.
  absl::Status Release(ClientId client, PinId pin, bool recycle = true);

  // ---- lifetime (docs/lifetime.md)
  // The client holds these ids, each as often as it says so, whether anybody has put them or not.
  // ResourceExhausted when it holds too many: none of them is held then.
  absl::Status Hold(ClientId client, absl::Span<const ObjectId> ids);
  // Ends one hold of each; what is not held is passed over.
  void Unhold(ClientId client, absl::Span<const ObjectId> ids);
  // The client leaves: as if it let go of everything it holds.
  void UnholdAll(ClientId client);
  // A reference leaves this node in a message: it is held for `transit_patience`, unless it is
  // claimed before. The number is the caller's, and none that was used for this id before.
  void Transit(const ObjectId& id, uint64_t number);
  // Holds it, and says so to the node that the reference comes from. Errors as Hold.
  absl::Status Claim(ClientId client, const ObjectId& id, const TransitMark& from);
  // The object is not owned any more. NotFound when nobody has put it.
  void Keep(ClientId client, const ObjectId& id, Instant deadline, StatusDone done);
  // For checkers.
  bool Holds(ClientId client, const ObjectId& id) const;

  // The very copy, complete or not, whatever it is to the shard. NotFound.
  absl::StatusOr<View> PinCopy(ClientId client, const ObjectId& id, const Generation& generation);

  // Memory for what is no object: `bytes` of the capacity, waited for like an object's.
  // ResourceExhausted when it can never be had, or was not had before the deadline. `purpose` is
  // for messages.
  RequestId ReserveScratch(ClientId client, const ObjectId& purpose, uint64_t bytes,
                           Instant deadline, ReserveDone done);
  // What an object of this size counts.
  uint64_t CountedBytes(uint64_t size, const PutOptions& options) const;
  // A block whose bytes are taken out of the reservation and counted until `counted` goes, on the
  // control loop. REQUIRES: the reservation has so many.
  using Scratch = ScratchBlock;
  void AllocateScratch(const std::shared_ptr<Reservation>& from, uint64_t bytes, ScratchDone done);

  // Ends with OK when the shard has recorded the deletion; NotFound for an id under which nothing
  // is adopted.
  void Delete(ClientId client, const ObjectId& id, Instant deadline, StatusDone done);
  // `nodes`: how far a broadcast to them has come is told, too.
  void Stat(ClientId client, const ObjectId& id, Instant deadline, StatDone done,
            std::vector<std::string> nodes = {});
  void Prefetch(ClientId client, const ObjectId& id, std::vector<std::string> nodes,
                Instant deadline, NodesDone done);
  // Has nodes fetch copies, and ends when each of them has one, with their number; or has not taken
  // it (ResourceExhausted). NotFound when nobody has put it, it was deleted meanwhile, or, unless
  // it is sticky, no node has one of the names; DataLoss. May be cancelled: what was begun goes on.
  RequestId Broadcast(ClientId client, const ObjectId& id, BroadcastOptions options,
                      Instant deadline, NodesDone done);
  // Only what is here: ids of complete copies.
  bool ContainsLocally(const ObjectId& id) const;

  // ---- data plane
  // What can be served now. NotFound, Aborted (another generation is here), ResourceExhausted,
  // InvalidArgument.
  absl::StatusOr<net::ServeGrant> Serve(const net::ServeRequest& request);
  // The same; but a request for an object that this node waits for itself is kept until the object
  // begins here, `serve_patience` at most: a shard names a node as a relay as soon as it has told
  // it whom to fetch from, and the next receiver may be quicker than the relay's own memory.
  void Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply);

  // ---- leaving
  // Has sole copies fetched elsewhere; `done` when none is left, or DeadlineExceeded naming how
  // many are.
  void Drain(Instant deadline, StatusDone done);

  StoreStats stats() const;
  // OK, or Internal with the invariant that does not hold (accounting, references, states).
  absl::Status CheckInvariants() const;

  // For checkers and tools: every local copy.
  struct CopyInfo {
    ObjectId id;
    Generation generation;
    uint64_t size_bytes;
    uint64_t counted_bytes;  // of the capacity
    bool complete;
    bool primary;
    uint64_t bytes_present;
    std::shared_ptr<net::TransferBuffer> buffer;
    v1::StickyMark sticky;
  };
  std::vector<CopyInfo> Copies() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_H_
