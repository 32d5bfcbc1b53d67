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
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/object_id.h"
#include "src/client/connection/call.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {

class ObjectReads final : public phalanx::internal::Call {
 public:
  // Called with the lock held, once for each number that is not dropped, and not within Begin. The
  // bytes are there during the call. Errors are those of Client::Get with OnLost::kFail.
  using OnRead =
      std::function<void(uint64_t number, const absl::StatusOr<absl::string_view>& bytes)>;
  // A read has no timeout, since a large object can take any time: it ends when the object has
  // come or is lost, with Drop, or with ResourceExhausted when the node has had no memory for it
  // for `patience`.
  ObjectReads(std::shared_ptr<phalanx::internal::Connection> connection, absl::Duration patience,
              OnRead on_read)
      : Call(std::move(connection), "Get", ObjectId()),
        patience_(patience),
        on_read_(std::move(on_read)) {}

  void Begin(uint64_t number, const ObjectId& id);
  // Nothing, if it has ended.
  void Drop(uint64_t number);
  // Looks whether the node lacks memory for a read that has begun before the last call of this: to
  // be called about each half second. Calls `on_full`, later, if it does.
  void Watch(const std::function<void()>& on_full);
  // The owner is gone: nothing is read any more.
  void Stop();

  void OnAnswer(uint64_t request, const phalanx::internal::local::Answer& answer) override;
  void OnFailure(const absl::Status& why) override;

 private:
  struct Reading {
    uint64_t number;  // of the owner
    ObjectId id;
    bool seen = false;  // by a call of Watch
    // Another Get of the object, whose timeout says what it has waited for; 0: there is none.
    uint64_t watch = 0;
    std::optional<Instant> full_since = {};
  };
  using Readings = std::map<uint64_t, Reading>;  // by request

  void Send(uint64_t request, const ObjectId& id, absl::Duration timeout);
  void Cancel(uint64_t request);
  void OnWatched(Readings::iterator reading, const phalanx::internal::local::Answer& answer);
  absl::StatusOr<Buffer> BytesOf(const ObjectId& id,
                                 const phalanx::internal::local::Answer& answer);

  const absl::Duration patience_;
  OnRead on_read_;
  std::function<void()> on_full_;
  Readings reading_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_OBJECT_READS_H_
