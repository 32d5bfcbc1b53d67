// ObjectReads: the Gets of objects whose names have come in messages. Each has a number of the
// owner. What has come of a large one is shown while the rest is on its way, so that the owner need
// not copy all of it at the end; it is void if the object is lost meanwhile.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/object_id.h"
#include "src/client/connection/call.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {

// Objects from this size on are shown in parts.
inline constexpr uint64_t kShownBytes = uint64_t{1} << 20;

class ObjectReads final : public phalanx::internal::Call {
 public:
  // Called with the lock held, once for each number that is not dropped, and not within Begin. The
  // bytes are there during the call. Errors are those of Client::Get with OnLost::kFail.
  // `shown`: all of the bytes were, in parts.
  using OnRead = std::function<void(uint64_t number, const absl::StatusOr<absl::string_view>& bytes,
                                    bool shown)>;
  // Called before that, in the same way: what has come, from this place on. Each byte once, but all
  // of them again if they turn out to be void.
  using OnPart = std::function<void(uint64_t number, uint64_t place, absl::string_view bytes)>;
  // A read has no timeout, since a large object can take any time: it ends when the object has
  // come or is lost, with Drop, or with ResourceExhausted when the node has had no memory for it
  // for `patience`.
  ObjectReads(std::shared_ptr<phalanx::internal::Connection> connection, absl::Duration patience,
              OnRead on_read, OnPart on_part)
      : Call(std::move(connection), "Get", ObjectId()),
        patience_(patience),
        on_read_(std::move(on_read)),
        on_part_(std::move(on_part)) {}

  // `bytes`: of the object, as the owner expects it.
  void Begin(uint64_t number, const ObjectId& id, uint64_t bytes);
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
  struct View {
    std::shared_ptr<phalanx::internal::HeldPin> pin;
    absl::string_view bytes;           // the place of all of them
    std::vector<uint64_t> shown = {};  // of each slice
  };
  struct Reading {
    uint64_t number;  // of the owner
    ObjectId id;
    std::optional<View> view = {};  // of an object that is shown in parts
    bool seen = false;              // by a call of Watch
    // Another Get of the object, whose timeout says what it has waited for; 0: there is none.
    uint64_t watch = 0;
    std::optional<Instant> full_since = {};
  };
  using Readings = std::map<uint64_t, Reading>;  // by request

  void Send(uint64_t request, const ObjectId& id, absl::Duration timeout, bool by_slice = false);
  // ResourceExhausted, if the file of the node cannot be mapped.
  absl::Status OnView(Reading& reading, const phalanx::internal::local::Mapped& mapped);
  // Returns true if the read goes on.
  bool OnProgress(Reading& reading, const phalanx::internal::local::Progress& progress);
  void Show(Reading& reading, const std::vector<uint64_t>& slices);
  // All of it has come.
  void End(Reading& reading);
  void DropView(Reading& reading);
  void Cancel(uint64_t request);
  void OnWatched(Readings::iterator reading, const phalanx::internal::local::Answer& answer);
  absl::StatusOr<Buffer> BytesOf(const ObjectId& id,
                                 const phalanx::internal::local::Answer& answer);

  const absl::Duration patience_;
  OnRead on_read_;
  OnPart on_part_;
  std::function<void()> on_full_;
  Readings reading_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_OBJECT_READS_H_
