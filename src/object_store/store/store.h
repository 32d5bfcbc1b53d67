// The store of one node: objects, pulls and pushes, memory, and the clients' requests. The shards'
// decisions, the data plane's bytes and the clients' calls meet here.
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
// are pure; the store carries out their effects.
#ifndef PHALANX_OBJECT_STORE_STORE_STORE_H_
#define PHALANX_OBJECT_STORE_STORE_STORE_H_

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
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/memory/shared_memory.h"
#include "src/object_store/store/store_types.h"

namespace phalanx::object_store {

class Store {
 public:
  // All of them outlive the store, which handles the shards' messages about objects and registers
  // its objects at `channel`. The data plane's ServeHandler calls Serve().
  Store(StoreOptions options, Executor& executor, SharedMemory& memory, ShardChannel& channel);
  ~Store();
  void SetDataPlane(net::DataPlane* data_plane);
  // A shard has received what this node sent at `heard` in the present session, and grants leases
  // of this length: see ShardLeases. A store that is never called serves names without a lease.
  void OnHeard(int shard, Instant heard, absl::Duration lease);

  // ---- clients
  ClientId OpenClient();
  // Ends the client's requests without a callback, its unsealed generations, pins and holds.
  // `clean`: the client has said goodbye and sees no memory any more. Otherwise the blocks that it
  // had mapped are condemned: they are never reused.
  void CloseClient(ClientId client, bool clean);

  // A whole object at once. `bytes` has at most kOwnFileBytes.
  RequestId Put(ClientId client, PutOptions options, std::string bytes, PutDone done);
  // Grants memory of `size` bytes to write into through `WriteGrant::block`. The object is
  // announced at once, so that receivers stream what the writer publishes.
  RequestId Create(ClientId client, PutOptions options, uint64_t size, CreateDone done);
  // Bytes [0, n) are final. InvalidArgument if n is less than before or more than the size;
  // NotFound if the client has no such writer.
  absl::Status Publish(ClientId client, WriterId writer, uint64_t n);
  // All bytes are final. REQUIRES: the client cannot write any more.
  void Seal(ClientId client, WriterId writer, bool wait_for_adoption, PutDone done,
            bool wait_for_copies = false);
  absl::Status Abort(ClientId client, WriterId writer);
  // Announces the generation again, with the version of the reduction that computed it: a shard
  // that has restarted knows the copy from the registration, but not its version. Does nothing if
  // the copy is gone.
  void AnnounceAgain(const ObjectId& id, const Generation& generation, const SlotVersion& version);

  RequestId Get(ClientId client, GetOptions options, GetEvents events);
  // Calls the callbacks of answered requests now instead of in a task of their own: for a session
  // that has made several calls and is about to send the answers.
  void HandOutAnswers();
  // Ends a Get, Create or Broadcast without its callback; releases what it would have returned.
  void Cancel(ClientId client, RequestId request);
  // NotFound if the client does not hold the pin. `recycle` false: another process can still see
  // the pages (the client was forked meanwhile), so the block is condemned, never reused.
  absl::Status Release(ClientId client, PinId pin, bool recycle = true);

  // ---- lifetime (docs/lifetime.md)
  // The client holds these ids, each as often as it calls Hold, whether the objects exist or not.
  // ResourceExhausted, without holding any of them, if the client holds too many.
  absl::Status Hold(ClientId client, absl::Span<const ObjectId> ids);
  // Ends one hold of each. Ids that the client does not hold are ignored.
  void Unhold(ClientId client, absl::Span<const ObjectId> ids);
  // Ends all holds of the client.
  void UnholdAll(ClientId client);
  // A reference leaves this node in a message: the node holds the object for `transit_patience`,
  // or until the reference is claimed. REQUIRES: `number` was not used for this id before.
  void Transit(const ObjectId& id, uint64_t number);
  // Holds the object, and claims the reference from the node that sent it. Errors as Hold.
  absl::Status Claim(ClientId client, const ObjectId& id, const TransitMark& from);
  // While `gather` is true, calls to Hold, Claim, Get and Release are one turn: it costs less than
  // one for each, and their holds leave in one message. The caller ends it with false before any
  // other call, and before it returns to the loop. For a session with several requests at hand.
  void Gather(bool gather);
  // The object is not owned any more: it stays without holds. NotFound if it does not exist.
  void Keep(ClientId client, const ObjectId& id, Instant deadline, StatusDone done);
  // Whether the client holds the id; for checkers.
  bool Holds(ClientId client, const ObjectId& id) const;

  // Pins this node's copy of the generation, complete or not, adopted or not. NotFound.
  absl::StatusOr<View> PinCopy(ClientId client, const ObjectId& id, const Generation& generation);

  // Reserves `bytes` of the capacity for memory that is no object's; waits for them as an object
  // does. ResourceExhausted if the node never has so many, or not before the deadline. `purpose` is
  // the object that error texts name.
  RequestId ReserveScratch(ClientId client, const ObjectId& purpose, uint64_t bytes,
                           Instant deadline, ReserveDone done);
  // The bytes of the capacity that an object of this size counts.
  uint64_t CountedBytes(uint64_t size, const PutOptions& options) const;
  // Allocates a block whose bytes are taken out of the reservation. REQUIRES: the reservation has
  // so many.
  using Scratch = ScratchBlock;
  void AllocateScratch(const std::shared_ptr<Reservation>& from, uint64_t bytes, ScratchDone done);

  // Ends with OK when the shard has recorded the deletion and no Get that begins later, on any
  // node, returns the deleted bytes (docs/lifetime.md has the exceptions). NotFound if no
  // generation of the object is adopted; DeadlineExceeded, although the deletion is recorded, if a
  // node that could return them was not heard from in time.
  void Delete(ClientId client, const ObjectId& id, Instant deadline, StatusDone done);
  // `nodes`: the answer has the progress of a broadcast to them, too.
  void Stat(ClientId client, const ObjectId& id, Instant deadline, StatDone done,
            std::vector<std::string> nodes = {});
  // Has nodes fetch copies. Ends with their number when each of them has a copy. ResourceExhausted
  // if a node has no room; NotFound if the object does not exist, is deleted meanwhile, or, unless
  // the broadcast is sticky, no node has one of the names; DataLoss. Cancel ends the call only: the
  // nodes still fetch.
  RequestId Broadcast(ClientId client, const ObjectId& id, BroadcastOptions options,
                      Instant deadline, NodesDone done);
  // Whether a complete copy is here.
  bool ContainsLocally(const ObjectId& id) const;

  // ---- data plane
  // Serves the copy now. NotFound, Aborted (another generation is here), ResourceExhausted,
  // InvalidArgument.
  absl::StatusOr<net::ServeGrant> Serve(const net::ServeRequest& request);
  // The same; but a request for an object that this node wants itself waits until the object begins
  // here, `serve_patience` at most: see PeerServer.
  void Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply);

  // Ends the scope, and those with its name and smaller numbers: their objects are freed on all
  // shards. Ends with OK when every node that is in touch has dropped its copies and refuses
  // others. InvalidArgument, ResourceExhausted, DeadlineExceeded (some shards may have ended it).
  RequestId EndScope(ClientId client, Scope scope, Instant deadline, StatusDone done);
  // Whether this node knows that the scope has ended; for checkers.
  bool HasEnded(const Scope& scope) const;

  // ---- leaving
  // Has other nodes fetch copies of the objects that only this node has. Ends when no such object
  // is left. DeadlineExceeded, with the number of those that are left; FailedPrecondition if a
  // Drain is under way.
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
    ObjectName name;
    Scope scope;
  };
  std::vector<CopyInfo> Copies() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_STORE_H_
