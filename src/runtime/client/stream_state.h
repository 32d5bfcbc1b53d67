// A streaming Get: the view that the reader looks through, and the next one when that became void.
//
// Guarded by the connection's lock, but for the bytes of the view, which lie still.
#ifndef PHALANX_RUNTIME_CLIENT_STREAM_STATE_H_
#define PHALANX_RUNTIME_CLIENT_STREAM_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "src/runtime/client/call.h"
#include "src/runtime/client/connection.h"

namespace phalanx::internal {

class StreamCall final : public Call {
 public:
  using Call::Call;

  // Lock held.
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
  void OnFailure(const absl::Status& why) override { End(Explain(why)); }

  // Without the lock. WaitForView gives the Get up when it fails.
  absl::Status WaitForView(Instant until);
  absl::StatusOr<absl::string_view> Next(size_t max_bytes, absl::Duration timeout);
  uint64_t size();
  absl::string_view metadata();
  // The reader is gone.
  void LetGo();

 private:
  struct View {
    std::shared_ptr<HeldPin> pin;
    std::shared_ptr<std::string> own;
    absl::string_view bytes;  // the whole object's place
    std::string metadata;
    uint64_t watermark = 0;
    bool is_final = false;
  };

  absl::StatusOr<View> ViewFrom(const local::Answer& answer);
  // The one that the node speaks of.
  View* newest();
  void BecomeFinal(View& view);
  void End(absl::Status why);
  void Drop(std::optional<View>& view);
  bool HasNews() const;
  absl::StatusOr<absl::string_view> Take(size_t max_bytes);

  // The reader's, and what the reader sees after it was told that it is void.
  std::optional<View> current_;
  std::optional<View> upcoming_;
  std::optional<std::string> void_reason_;
  absl::Status failure_;
  uint64_t position_ = 0;
};

struct StreamState {
  explicit StreamState(std::shared_ptr<StreamCall> made) : call(std::move(made)) {}
  ~StreamState() { call->LetGo(); }
  const std::shared_ptr<StreamCall> call;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_STREAM_STATE_H_
