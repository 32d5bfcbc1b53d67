#include "src/client/gather.h"

#include <algorithm>
#include <utility>

#include "src/client/buffer_state.h"

namespace phalanx::internal {
namespace {

using Arrivals = std::vector<Client::Arrival>;

void Shape(Arrivals arrivals, Arrivals& out) { out = std::move(arrivals); }

void Shape(Arrivals arrivals, std::vector<Buffer>& out) {
  // Arrivals are in the order of their answers; the caller expects the order of its ids.
  std::sort(arrivals.begin(), arrivals.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  for (Client::Arrival& arrival : arrivals) out.push_back(std::move(arrival.buffer));
}

// Admission counts only the first request of a row; the row then fills its window at once, and
// later each answer sends one request. So the windows of several rows never exceed the limit
// together.
static_assert(kMaxOutstandingRequests + kGatherWindow <= local::kMaxRequestsUnderWay);

template <typename T>
class GatherCall final : public FutureState<T> {
 public:
  GatherCall(std::shared_ptr<Connection> connection, absl::Span<const ObjectId> ids, size_t count,
             const GetOptions& options, const ObjectId& near)
      : FutureState<T>(std::move(connection), "Get", ids.empty() ? ObjectId() : ids[0]),
        ids_(ids.begin(), ids.end()),
        count_(count),
        options_(options),
        near_(near),
        deadline_(MonotonicNow() + options.timeout) {}

  void Begin() {
    // Numbers for all ids, although only a window is sent: a number then also gives the index.
    first_ = this->connection().NewRequests(ids_.size());
    const local::Request request = Next();
    const Connection::Batch batch(this->connection());
    this->connection().Start(this->shared_from_this(), first_, ids_.size(), deadline_, request);
    this->connection().Update([this] { Continue(); });
  }

  void OnAnswer(uint64_t request, const local::Answer& answer) override {
    const size_t index = static_cast<size_t>(request - first_);
    this->connection().EndPart(request);
    --unanswered_;
    // A temporary Get, so that an error names this object and not the first one.
    GetCall part(this->shared_connection(), "Get", ids_[index]);
    absl::StatusOr<Buffer> buffer = BufferFrom(part, answer, options_.offset, options_.length);
    if (buffer.ok()) {
      arrivals_.push_back({index, *std::move(buffer)});
    } else {
      ++failures_;
      if (first_failure_.ok()) first_failure_ = buffer.status();
    }
    // One error is final only if the remaining objects cannot reach `count`.
    if (arrivals_.size() == count_ || ids_.size() - failures_ < count_) return End();
    Continue();
  }

 private:
  local::Request Next() {
    const uint64_t number = first_ + sent_;
    const ObjectId& id = ids_[sent_++];
    ++unanswered_;
    return GetMessage(number, id, options_, deadline_ - MonotonicNow(),
                      this->connection().names().Find(id), near_);
  }

  void Continue() {
    while (!this->done() && sent_ < ids_.size() && unanswered_ < kGatherWindow) {
      const uint64_t number = first_ + sent_;
      this->connection().SendPart(this->shared_from_this(), Next(), number);
    }
  }

  void End() {
    // The Gets that are still open have no reader any more.
    this->connection().CancelRequests(*this);
    if (arrivals_.size() < count_) return this->Set(first_failure_);
    T result;
    Shape(std::move(arrivals_), result);
    this->Set(std::move(result));
  }

  const std::vector<ObjectId> ids_;
  const size_t count_;
  const GetOptions options_;
  const ObjectId near_;
  const Instant deadline_;
  uint64_t first_ = 0;
  size_t sent_ = 0;
  size_t unanswered_ = 0;
  size_t failures_ = 0;
  absl::Status first_failure_;
  Arrivals arrivals_;
};

template <typename T>
Future<T> Gather(std::shared_ptr<Connection> connection, absl::Span<const ObjectId> ids,
                 size_t count, const GetOptions& options, const ObjectId& near = ObjectId()) {
  // Without a request no answer would end the call.
  if (count == 0) {
    return Future<T>(FutureState<T>::Ended(std::move(connection), "Get", ObjectId(), T()));
  }
  auto call = std::make_shared<GatherCall<T>>(std::move(connection), ids, count, options, near);
  call->Begin();
  return Future<T>(std::move(call));
}

}  // namespace

Future<Arrivals> GetFirstOf(std::shared_ptr<Connection> connection, absl::Span<const ObjectId> ids,
                            size_t count, const GetOptions& options) {
  return Gather<Arrivals>(std::move(connection), ids, count, options);
}

Future<std::vector<Buffer>> GetAllOf(std::shared_ptr<Connection> connection,
                                     absl::Span<const ObjectId> ids, const GetOptions& options,
                                     const ObjectId& near) {
  return Gather<std::vector<Buffer>>(std::move(connection), ids, ids.size(), options, near);
}

local::Get GetMessage(uint64_t request, const ObjectId& id, const GetOptions& options,
                      absl::Duration timeout, const ObjectName& name, const ObjectId& near) {
  return {request,        id,
          false,          timeout,
          options.offset, options.length,
          near,           options.on_lost == GetOptions::OnLost::kFail,
          name,           options.scope};
}

void GetCall::OnAnswer(uint64_t, const local::Answer& answer) {
  Set(BufferFrom(*this, answer, offset, length));
}

}  // namespace phalanx::internal
