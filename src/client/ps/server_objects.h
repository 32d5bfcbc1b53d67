// ServerObjects: the objects of the parts of a server: sums of pushes that are under way, and
// versions that workers pull.
//
// A sum is a reduction with fixed order whose result is at this node; of a single push it is that
// push. Both, and the versions, are owned by this client: they end with the server.
//
// Belongs to a server. One thread at a time, but ready().
#ifndef PHALANX_CLIENT_PS_SERVER_OBJECTS_H_
#define PHALANX_CLIENT_PS_SERVER_OBJECTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {

// The id of an object that workers and servers know by this name. The client keeps no name of it.
ObjectId IdOfHandle(absl::string_view handle);

class ServerObjects {
 public:
  struct Sum {
    uint32_t table;
    uint64_t attempt;
    absl::StatusOr<Buffer> bytes;
  };
  struct Unpublished {
    uint32_t table;
    std::string handle;
    absl::Status why;
  };

  explicit ServerObjects(std::shared_ptr<Client> client);

  // What the names of all objects of this server begin with: another one in each life.
  const std::string& prefix() const { return prefix_; }

  // Copies the bytes. Waits for memory if the node is full, but not for long.
  void Publish(const ServerCore::Publish& publish);
  void Unpublish(const std::string& handle);
  void Reduce(const ServerCore::Reduce& reduce, DType dtype);

  // There is something to take. Any thread.
  bool ready() const;
  // Sums that are there, or have failed. One that is there ends the others of its table.
  std::vector<Sum> TakeSums();
  // Versions that could not be stored.
  std::vector<Unpublished> TakeUnpublished();
  // Gives all of it up.
  void End();

 private:
  struct UnderWay {
    uint32_t table;
    uint64_t attempt;
    ObjectId target;  // nil: a single push
    Future<Buffer> bytes;
  };
  struct Version {
    uint32_t table;
    Future<PutResult> put;
    bool stored = false;
  };

  void Cancel(const UnderWay& sum);
  // Those of the table, but not this attempt.
  void CancelOthers(uint32_t table, uint64_t attempt);

  const std::shared_ptr<Client> client_;
  const std::string prefix_;
  std::vector<UnderWay> sums_;
  std::map<std::string, Version> versions_;  // by handle
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SERVER_OBJECTS_H_
