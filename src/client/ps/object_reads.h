// ObjectReads: the Gets of objects whose names have come in messages. Each has a number of the
// owner.
//
// Lock held, in all methods (see Connection); but for the constructor.
#ifndef PHALANX_CLIENT_PS_OBJECT_READS_H_
#define PHALANX_CLIENT_PS_OBJECT_READS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/client/connection/call.h"

namespace phalanx::ps::internal {

class ObjectReads final : public phalanx::internal::Call {
 public:
  // Called with the lock held, once for each number that is not dropped, and not within Begin. The
  // bytes are there during the call. Errors are those of Client::Get with OnLost::kFail.
  using OnRead =
      std::function<void(uint64_t number, const absl::StatusOr<absl::string_view>& bytes)>;
  // A read has no timeout, since a large object can take any time: it ends when the object has
  // come or is lost, or with Drop.
  ObjectReads(std::shared_ptr<phalanx::internal::Connection> connection, OnRead on_read)
      : Call(std::move(connection), "Get", ObjectId()), on_read_(std::move(on_read)) {}

  void Begin(uint64_t number, const ObjectId& id);
  // Nothing, if it has ended.
  void Drop(uint64_t number);
  // The owner is gone: nothing is read any more.
  void Stop();

  void OnAnswer(uint64_t request, const phalanx::internal::local::Answer& answer) override;
  void OnFailure(const absl::Status& why) override;

 private:
  struct Reading {
    uint64_t number;  // of the owner
    ObjectId id;
  };

  OnRead on_read_;
  std::map<uint64_t, Reading> reading_;  // by request
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_OBJECT_READS_H_
