// ServerObjects: the objects of the parts of a server: sums of pushes that are under way, and
// versions that workers pull.
//
// A sum is a reduction with fixed order whose result is at this node; of a single push it is that
// push. A ring sum is tried in a ring, whose result is a version; where there is none, its slices
// are summed each by itself, in the same order. All of these, and the versions, are owned by this
// client: they end with the server.
//
// Nothing here waits for memory of the node: a version that has none is kept as a copy until there
// is some, or kRoomPatience is over; and only a few are.
//
// Belongs to a server. One thread at a time, but ready().
#ifndef PHALANX_CLIENT_PS_SERVER_OBJECTS_H_
#define PHALANX_CLIENT_PS_SERVER_OBJECTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "src/client/writer_state.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {

// Of a version, for memory of the node.
inline constexpr absl::Duration kRoomPatience = absl::Seconds(5);
// Versions that wait for memory: one of any size, or several of so many bytes.
inline constexpr uint64_t kMostWaitingBytes = uint64_t{64} << 20;

// Of an attempt at a sum of objects of so many bytes, when `expired` ones before it were too slow:
// what is lost, or is not to be had, is no reason to wait for ever, and what is slow gets there.
absl::Duration SumPatience(uint64_t bytes, int expired);

// The id of an object that workers and servers know by this name. The client keeps no name of it.
ObjectId IdOfHandle(absl::string_view handle);

class ServerObjects {
 public:
  struct Sum {
    uint32_t table;
    uint64_t attempt;
    absl::StatusOr<Buffer> bytes;
    // Of the push to which an error belongs, or of the rows' version; empty: it is not known.
    std::string handle = {};
    std::string version = {};  // of a ring sum that a ring has made
    std::string slices = {};   // else its bytes
    absl::string_view view() const { return slices.empty() ? bytes->view() : slices; }
  };
  // A ring sum that goes on in slices.
  struct InSlices {
    uint32_t table;
    uint64_t attempt;
  };
  struct Unpublished {
    uint32_t table;
    std::string handle;
    absl::Status why;
  };

  explicit ServerObjects(std::shared_ptr<Client> client);

  // What the names of all objects of this server begin with: another one in each life.
  const std::string& prefix() const { return prefix_; }

  // In two steps: Publish asks for memory, Fill copies the bytes. Workers can be sent the name
  // between the two.
  void Publish(const ServerCore::Publish& publish);
  void Fill(const ServerCore::Publish& publish);
  void Unpublish(const std::string& handle);
  // The version of a ring sum is needed, or not. `sum` has one.
  void Keep(const Sum& sum, bool needed);
  // Nothing is ever put under this name: what waits for it ends.
  void Void(const std::string& handle);
  // A sum as elements of this dtype.
  void Reduce(const ServerCore::Reduce& reduce, DType dtype);
  // All sums of the table.
  void CancelSums(uint32_t table) { CancelOthers(table, 0); }

  // There is something to take. Any thread.
  bool ready() const;
  // Sums that are there, or have failed. One that is there ends the others of its table.
  std::vector<Sum> TakeSums();
  // Those of which it has seen that there is no ring.
  std::vector<InSlices> TakeInSlices() { return std::exchange(in_slices_, {}); }
  // Versions that could not be stored. Writes those that have got memory.
  std::vector<Unpublished> TakeUnpublished();
  // Gives all of it up.
  void End();

 private:
  struct Slice {
    ObjectId target;
    Future<Buffer> bytes;
  };
  struct UnderWay {
    uint32_t table;
    uint64_t attempt;
    ObjectId target;                   // nil: a single push
    std::vector<std::string> handles;  // of the sources
    std::vector<ObjectId> sources;
    ReduceOptions options = {};
    uint64_t size = 0;  // of each source
    Future<Buffer> bytes = {};
    std::string version = {};        // of a ring sum: its target
    std::vector<Slice> slices = {};  // of one for which there is no ring

    bool ready() const;
  };
  // Waits for memory, then for its Seal, and is stored then.
  struct Version {
    uint32_t table = 0;
    absl::Status refused = {};  // it was not begun
    std::shared_ptr<phalanx::internal::CreateCall> room = nullptr;
    uint64_t size = 0;
    std::string bytes = {};  // while it waits for memory
    Future<PutResult> put = {};
    bool stored = false;

    bool ready() const;
    // It has a copy, or is to get one.
    bool waits() const { return room != nullptr && (!bytes.empty() || !room->done()); }
  };

  // Memory for it is there, or was refused. `bytes` are those of the version.
  static void Write(Version& version, absl::string_view bytes);
  void Drop(const std::string& handle, Version& version);
  uint64_t waiting() const;

  // The ring sum has no ring.
  void BeginSlices(UnderWay& sum);
  // What the sum has come to. REQUIRES: it is ready, and is not to go on in slices.
  Sum ResultOf(const UnderWay& sum);
  void Cancel(const UnderWay& sum);
  // Those of the table, but not this attempt.
  void CancelOthers(uint32_t table, uint64_t attempt);

  const std::shared_ptr<Client> client_;
  const std::string prefix_;
  std::vector<UnderWay> sums_;
  std::vector<InSlices> in_slices_;
  std::map<std::string, Version> versions_;  // by handle
  std::map<uint32_t, int> expired_;          // by table: attempts at its sum, one after the other
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SERVER_OBJECTS_H_
