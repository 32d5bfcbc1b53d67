// A streaming Get: the view that the reader uses, and the next view if the first one became void.
//
// Guarded by the connection's lock, except the bytes of a view, which do not change.
#ifndef PHALANX_CLIENT_STREAM_STATE_H_
#define PHALANX_CLIENT_STREAM_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"

namespace phalanx::internal {

class StreamCall final : public Call {
 public:
  using Call::Call;

  // Lock held.
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
  void OnFailure(const absl::Status& why) override { End(Explain(why)); }

  // Without the lock. WaitForView cancels the Get if it fails.
  absl::Status WaitForView(Instant until);
  absl::StatusOr<absl::string_view> Next(size_t max_bytes, absl::Duration timeout);
  uint64_t size();
  absl::string_view metadata();
  // Called when the reader is destroyed.
  void LetGo();

 private:
  struct View {
    std::shared_ptr<HeldPin> pin;
    std::shared_ptr<std::string> own;
    absl::string_view bytes;  // the place of the whole object
    std::string metadata;
    uint64_t watermark = 0;
    bool is_final = false;
  };

  absl::StatusOr<View> ViewFrom(const local::Answer& answer);
  // The view to which the node's messages refer.
  View* newest();
  void BecomeFinal(View& view);
  void End(absl::Status why);
  void Drop(std::optional<View>& view);
  bool HasNews() const;
  absl::StatusOr<absl::string_view> Take(size_t max_bytes);

  // State of the reader. The reader sees `upcoming_` only after Next has returned that `current_`
  // is void.
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

#endif  // PHALANX_CLIENT_STREAM_STATE_H_
