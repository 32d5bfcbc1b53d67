// One simulated client of one node's store. It executes the workload's operations, remembers its
// pins and references, and checks every answer and every view against the history.
//
// Like a client in another process, it keeps addresses and not owners: it has only weak references
// to the memory behind its views. So a store that frees pages too early is detected, by the expired
// reference or by changed bytes.
//
// Thread rule: every call on the node's control loop, except the checks and the const members.
// Owned by the simulation; when its node dies, it is destroyed before the next event. Testonly.
#ifndef PHALANX_SIM_CLUSTER_SIM_CLIENT_H_
#define PHALANX_SIM_CLUSTER_SIM_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/object_store/store/store.h"
#include "src/sim/cluster/history.h"

namespace phalanx::sim {

class SimClient {
 public:
  struct PutShape {
    ObjectId id;
    uint64_t size_bytes = 0;
    int slices = 1;
    size_t metadata_bytes = 0;
    bool wait_for_adoption = false;
    absl::Duration timeout = absl::InfiniteDuration();
  };

  // An object that is being written.
  struct Writer {
    uint64_t attempt = 0;
    object_store::WriterId id = 0;
    std::weak_ptr<object_store::MemoryBlock> block;
    char* bytes = nullptr;
    uint64_t size_bytes = 0;
    uint64_t written = 0;
  };

  // Opens a client. `store`, `control` and `history` must outlive this.
  SimClient(const NodeKey& node, object_store::Store& store, Executor& control,
            const SimScheduler& scheduler, History& history);
  // The client ends without closing: its node died, or the run is over.
  ~SimClient();
  SimClient(const SimClient&) = delete;
  SimClient& operator=(const SimClient&) = delete;

  // ---- operations; each returns the operation's number in the history
  uint64_t Put(const PutShape& shape);
  // The writer is in writers() once the store has granted memory.
  uint64_t Create(const PutShape& shape);
  // Writes the next `bytes` bytes, and publishes them.
  void Write(Writer& writer, uint64_t bytes);
  // Writes the rest and seals. The writer is gone afterwards.
  uint64_t Seal(object_store::WriterId writer, bool wait_for_adoption);
  void Abort(object_store::WriterId writer);
  // `near`: the object whose creator's node is preferred; nil: none.
  uint64_t Get(const ObjectId& id, absl::Duration timeout, bool streaming,
               const ObjectId& near = ObjectId());
  // Streams until this share of the object (of each slice, if there are several) has arrived, and
  // then releases the view.
  uint64_t ReadUntil(const ObjectId& id, absl::Duration timeout, double share);
  void Cancel(uint64_t operation);
  void Release(object_store::PinId pin, bool recycle);
  uint64_t Delete(const ObjectId& id, absl::Duration timeout);
  uint64_t Stat(const ObjectId& id, absl::Duration timeout);
  // Not sticky.
  uint64_t Broadcast(const ObjectId& id, std::vector<std::string> nodes, absl::Duration timeout);
  // Ends the connection and releases everything. No call is allowed afterwards.
  void Close(bool clean);

  // ---- inspection
  std::vector<object_store::WriterId> writers() const;
  Writer& writer(object_store::WriterId id) { return writers_.at(id); }
  std::vector<object_store::PinId> pins() const;
  // Returns whether the view is a stream that is still being read.
  bool streams(object_store::PinId pin) const;
  // Returns the Gets, Creates and Broadcasts that have not ended.
  std::vector<uint64_t> cancellable() const;
  bool closed() const { return closed_; }
  const NodeKey& node() const { return node_; }

  // Checks that every view still shows its attempt: all bytes, or a sample of them.
  void CheckViews(bool all_bytes);

 private:
  struct OpenView;
  using PinId = object_store::PinId;

  Instant After(absl::Duration timeout) const { return control_.Now() + timeout; }
  uint64_t Begin(absl::string_view what, const ObjectId& id, absl::Duration timeout);
  void End(uint64_t operation, const absl::Status& status);
  void LoseEverything();
  object_store::PutOptions OptionsOf(const PutShape& shape, const Attempt& attempt) const;
  void PutDone(uint64_t operation, uint64_t attempt, bool waited,
               const absl::StatusOr<object_store::PutResult>& result);
  void PutFailed(Attempt& attempt, const absl::Status& why);
  void CreateDone(uint64_t operation, uint64_t attempt,
                  absl::StatusOr<object_store::WriteGrant> result);
  void OnView(uint64_t operation, bool streaming, absl::StatusOr<object_store::View> result);
  void OnVoid(uint64_t operation, const absl::Status& why);
  void AddView(uint64_t operation, bool streaming, const object_store::View& view);
  void Follow(PinId pin);
  // Ends the stream if the requested share has arrived.
  bool EndIfEnough(PinId pin);
  void ReadOn(PinId pin);
  void CheckView(PinId pin, const OpenView& view, bool all_bytes);
  bool CheckSlice(PinId pin, const OpenView& view, int slice, uint64_t from, uint64_t to);

  const NodeKey node_;
  object_store::Store& store_;
  Executor& control_;
  const SimScheduler& scheduler_;
  History& history_;
  const object_store::ClientId id_;
  bool closed_ = false;

  std::map<object_store::WriterId, Writer> writers_;
  std::map<PinId, OpenView> views_;
  std::map<uint64_t, object_store::RequestId> requests_;  // by operation: cancellable requests
  std::map<uint64_t, PinId> streams_;                     // by operation: the view that it reads
  std::map<uint64_t, double> shares_;                     // by operation: the share for ReadUntil
  // By operation: streams whose view was released. The release ends the stream, unless the view
  // becomes void at the same time.
  std::map<uint64_t, object_store::RequestId> let_go_;
  std::map<uint64_t, uint64_t> attempts_;  // by operation: Puts, Creates and Seals
  std::set<uint64_t> operations_;          // without an answer yet
  uint64_t samples_ = 0;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_SIM_CLIENT_H_
