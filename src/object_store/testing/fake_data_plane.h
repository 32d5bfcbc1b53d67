// A data plane whose pulls stand in a queue until the test ends them. Testonly.
#ifndef PHALANX_OBJECT_STORE_TESTING_FAKE_DATA_PLANE_H_
#define PHALANX_OBJECT_STORE_TESTING_FAKE_DATA_PLANE_H_

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/common/check.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"

namespace phalanx::object_store::testing {

class FakeDataPlane : public net::DataPlane {
 public:
  struct Pull {
    PullHandle handle = 0;
    net::PullSpec spec;
    PullDone done;
    bool cancelled = false;
  };

  explicit FakeDataPlane(Executor& executor) : executor_(executor) {}

  absl::StatusOr<net::Address> Listen(const net::Address& on) override { return on; }

  PullHandle StartPull(net::PullSpec spec, PullDone done) override {
    for (const auto& pull : pulls_) {
      PHALANX_CHECK(pull->spec.into != spec.into || (pull->spec.slices & spec.slices) == 0,
                    "a slice has one writer");
    }
    pulls_.push_back(
        std::make_unique<Pull>(Pull{++last_handle_, std::move(spec), std::move(done)}));
    ++started_;
    return last_handle_;
  }

  // The end comes when the test says so, or by itself with `cancel_at_once`.
  void CancelPull(PullHandle handle) override {
    for (const auto& pull : pulls_) {
      if (pull->handle == handle) pull->cancelled = true;
    }
    if (!cancel_at_once) return;
    executor_.Post([this, handle] {
      for (size_t i = 0; i < pulls_.size(); ++i) {
        if (pulls_[i]->handle == handle) return End(i, absl::CancelledError("cancelled"));
      }
    });
  }

  Executor* LoopOf(PullHandle) const override { return &executor_; }
  // No peer dials it.
  void SetLinkHandler(LinkHandler) override {}

  void AbortPushes(const ObjectId& object, const Generation& generation,
                   absl::Status why) override {
    aborted.push_back({object, generation});
    if (on_abort) on_abort(object, generation);
    (void)why;
  }

  net::DataPlaneStats stats() const override { return {}; }

  // ---- for the test; all on the loop
  size_t size() const { return pulls_.size(); }
  Pull& pull(size_t i) { return *pulls_.at(i); }
  int started() const { return started_; }

  // Brings bytes of the object's content into the first slice asked for that is not full; false if
  // all are.
  bool Feed(size_t i, absl::string_view content, uint64_t bytes) {
    const net::PullSpec& spec = pull(i).spec;
    for (int s = 0; s < spec.into->layout().slices; ++s) {
      const uint64_t from = spec.into->watermark(s);
      const uint64_t left = spec.into->layout().Size(s) - from;
      if ((spec.slices >> s & 1) == 0 || left == 0) continue;
      const uint64_t n = std::min(bytes, left);
      std::memcpy(spec.into->slice(s).data() + from,
                  content.data() + spec.into->layout().Begin(s) + from, n);
      spec.into->Publish(s, from + n);
      fed_ += n;
      return true;
    }
    return false;
  }

  // Feeds all that is missing and ends the pull well.
  void Finish(size_t i, absl::string_view content) {
    while (Feed(i, content, UINT64_MAX)) {
    }
    End(i, absl::OkStatus());
  }

  void End(size_t i, absl::Status status) {
    std::unique_ptr<Pull> pull = std::move(pulls_.at(i));
    pulls_.erase(pulls_.begin() + static_cast<ptrdiff_t>(i));
    net::PullOutcome outcome;
    outcome.status = std::move(status);
    outcome.bytes_received = std::exchange(fed_, 0);
    outcome.first_byte = absl::Microseconds(7);
    pull->done(outcome);
  }

  bool cancel_at_once = true;
  std::vector<std::pair<ObjectId, Generation>> aborted;
  std::function<void(const ObjectId&, const Generation&)> on_abort;

 private:
  Executor& executor_;
  PullHandle last_handle_ = 0;
  int started_ = 0;
  uint64_t fed_ = 0;
  std::deque<std::unique_ptr<Pull>> pulls_;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_OBJECT_STORE_TESTING_FAKE_DATA_PLANE_H_
