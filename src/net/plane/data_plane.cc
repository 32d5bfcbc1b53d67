#include "src/net/plane/data_plane.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/net/frame/frame.h"
#include "src/net/plane/connection_budget.h"
#include "src/net/plane/puller.h"
#include "src/net/plane/pusher.h"
#include "src/net/pull/data_plane_counters.h"
#include "src/net/push/egress_limiter.h"

namespace phalanx::net {
namespace {

// The size of the block into which all connections of a loop read discarded bytes.
constexpr size_t kScratchBytes = size_t{64} * 1024;

// State that all loops share. Each part has its own synchronization.
struct Shared {
  explicit Shared(const DataPlaneOptions& options)
      : budget(std::make_shared<ConnectionBudget>(
            ConnectionBudget::Limits{options.max_connections, options.max_unproven_connections})),
        limiter(options.max_egress) {}

  const std::shared_ptr<ConnectionBudget> budget;
  DataPlaneCounters counters;
  EgressLimiter limiter;
};

// Receives the messages of the I/O loops on the control loop. I/O loops hold it weakly, since it
// can be destroyed first.
class ControlSide {
 public:
  virtual ~ControlSide() = default;
  virtual void OnPullEnded(size_t loop, uint64_t handle, const PullOutcome& outcome) = 0;
  virtual void OnPushRequested(size_t loop, Pusher::PushId push, const ServeRequest& request) = 0;
  virtual void OnPushEnded(size_t loop, Pusher::PushId push) = 0;
  virtual void OnLinkRequested(IncomingLink incoming) = 0;
};

// The state of one I/O loop. Constructed on the control loop and then used only on its own loop.
// Destroyed there, or on any thread after the loop has shut down.
class IoLoop final : public Pusher::Listener {
 public:
  IoLoop(size_t index, Network& network, Executor& executor, Executor& control,
         const DataPlaneOptions& options, size_t max_idle_per_peer, std::shared_ptr<Shared> shared,
         std::weak_ptr<ControlSide> control_side);

  Executor& executor() { return executor_; }
  // Null after Shutdown.
  Puller* puller() { return puller_.get(); }
  Pusher* pusher() { return pusher_.get(); }
  void Grant(Pusher::PushId push, absl::StatusOr<ServeGrant> answer);
  void Shutdown();

 private:
  void PushRequested(Pusher::PushId push, ServeRequest request) override;
  void PushEnded(Pusher::PushId push, ServeGrant grant) override;
  void LinkRequested(IncomingLink incoming) override;
  void PullEnded(uint64_t handle, PullOutcome outcome);

  // Constant after construction.
  const size_t index_;
  Executor& executor_;
  Executor& control_;
  const std::shared_ptr<Shared> shared_;
  const std::weak_ptr<ControlSide> control_side_;

  std::vector<char> scratch_ = std::vector<char>(kScratchBytes);
  std::unique_ptr<Puller> puller_;
  std::unique_ptr<Pusher> pusher_;
};

Puller::Options PullerOptions(const DataPlaneOptions& options, size_t max_idle_per_peer) {
  Puller::Options result;
  result.handshake = options.handshake;
  result.receiver = {options.stall_timeout, options.checksums};
  result.connect_timeout = options.connect_timeout;
  // Shorter than the idle timer of the peer, so that a pull does not take a connection that the
  // peer is closing.
  result.idle_timeout = options.idle_timeout * 0.9;
  result.max_idle_per_peer = max_idle_per_peer;
  return result;
}

Pusher::Options PusherOptions(const DataPlaneOptions& options) {
  Pusher::Options result;
  result.handshake = options.handshake;
  result.sender = {options.self, options.segment_bytes, options.checksums, options.idle_timeout};
  result.handshake_timeout = options.handshake_timeout;
  result.on_rejected_peer = options.on_rejected_peer;
  return result;
}

IoLoop::IoLoop(size_t index, Network& network, Executor& executor, Executor& control,
               const DataPlaneOptions& options, size_t max_idle_per_peer,
               std::shared_ptr<Shared> shared, std::weak_ptr<ControlSide> control_side)
    : index_(index),
      executor_(executor),
      control_(control),
      shared_(std::move(shared)),
      control_side_(std::move(control_side)),
      puller_(std::make_unique<Puller>(
          network, executor, PullerOptions(options, max_idle_per_peer), absl::MakeSpan(scratch_),
          shared_->counters, *shared_->budget,
          [this](uint64_t handle, PullOutcome outcome) { PullEnded(handle, std::move(outcome)); })),
      pusher_(std::make_unique<Pusher>(executor, PusherOptions(options), shared_->limiter,
                                       absl::MakeSpan(scratch_), shared_->counters,
                                       *shared_->budget, *this)) {}

void IoLoop::Shutdown() {
  puller_.reset();
  pusher_.reset();
}

void IoLoop::Grant(Pusher::PushId push, absl::StatusOr<ServeGrant> answer) {
  // After Shutdown the grant must still return to the control loop, which releases the pin.
  if (pusher_ != nullptr) return pusher_->Grant(push, std::move(answer));
  if (answer.ok()) PushEnded(push, *std::move(answer));
}

void IoLoop::PullEnded(uint64_t handle, PullOutcome outcome) {
  // The copy shares no memory with a status of this loop: see TransferBuffer::Close.
  outcome.status = absl::Status(outcome.status.code(), outcome.status.message());
  control_.Post([side = control_side_, loop = index_, handle, outcome = std::move(outcome)] {
    if (const auto control = side.lock()) control->OnPullEnded(loop, handle, outcome);
  });
}

void IoLoop::PushRequested(Pusher::PushId push, ServeRequest request) {
  control_.Post([side = control_side_, loop = index_, push, request = std::move(request)] {
    if (const auto control = side.lock()) control->OnPushRequested(loop, push, request);
  });
}

void IoLoop::PushEnded(Pusher::PushId push, ServeGrant grant) {
  // The grant is destroyed with the task, on the control loop.
  control_.Post([side = control_side_, loop = index_, push, grant = std::move(grant)] {
    if (const auto control = side.lock()) control->OnPushEnded(loop, push);
  });
}

void IoLoop::LinkRequested(IncomingLink incoming) {
  control_.Post([side = control_side_, incoming = std::move(incoming)]() mutable {
    if (const auto control = side.lock()) control->OnLinkRequested(std::move(incoming));
  });
}

// The part of the data plane that lives on the control loop.
class Control final : public ControlSide, public std::enable_shared_from_this<Control> {
 public:
  Control(Executor& control, DataPlaneOptions options, DataPlane::ServeHandler serve)
      : control_(control),
        options_(std::move(options)),
        serve_(std::move(serve)),
        shared_(std::make_shared<Shared>(options_)) {}

  void Start(Network& network, const std::vector<Executor*>& io);
  void Shutdown();
  absl::StatusOr<Address> Listen(Network& network, const Address& on);

  uint64_t StartPull(PullSpec spec, DataPlane::PullDone done);
  void CancelPull(uint64_t handle);
  Executor* LoopOf(uint64_t handle) const;
  void AbortPushes(const ObjectId& object, const Generation& generation,
                   const absl::Status& reason);
  void SetLinkHandler(DataPlane::LinkHandler handler) { on_link_ = std::move(handler); }
  DataPlaneStats stats() const;

 private:
  struct Pull {
    size_t loop;
    DataPlane::PullDone done;
  };
  class PendingPush;
  struct Push {
    ObjectId object;
    Generation generation;
  };
  using PushKey = std::pair<size_t, Pusher::PushId>;

  void OnPullEnded(size_t loop, uint64_t handle, const PullOutcome& outcome) override;
  void OnPushRequested(size_t loop, Pusher::PushId push, const ServeRequest& request) override;
  void OnPushEnded(size_t loop, Pusher::PushId push) override;
  void OnLinkRequested(IncomingLink incoming) override;
  void Answer(size_t loop, Pusher::PushId push, const ServeRequest& request,
              absl::StatusOr<ServeGrant> answer);
  size_t LoopFor(const NodeKey& peer) const;

  // Constant after Start.
  Executor& control_;
  const DataPlaneOptions options_;
  DataPlane::ServeHandler serve_;
  DataPlane::LinkHandler on_link_;
  const std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<IoLoop>> loops_;
  std::unique_ptr<Listener> listener_;

  uint64_t next_handle_ = 1;
  std::map<uint64_t, Pull> pulls_;
  std::map<PushKey, Push> pushes_;
  // Number of requests without an answer so far.
  size_t requests_waiting_ = 0;
  std::vector<int> pulls_on_loop_;
  // The loop of the next accepted connection.
  size_t next_accept_loop_ = 0;
};

void Control::Start(Network& network, const std::vector<Executor*>& io) {
  // Each loop has its own pool, so the limit per peer is divided among them.
  const int idle_share = options_.max_idle_connections_per_peer / static_cast<int>(io.size());
  for (Executor* const executor : io) {
    loops_.push_back(std::make_shared<IoLoop>(loops_.size(), network, *executor, control_, options_,
                                              static_cast<size_t>(std::max(1, idle_share)), shared_,
                                              weak_from_this()));
  }
  pulls_on_loop_.assign(loops_.size(), 0);
}

void Control::Shutdown() {
  // First, so that no connection is accepted for a loop that has shut down.
  listener_.reset();
  for (std::shared_ptr<IoLoop>& loop : loops_) {
    // The task keeps the IoLoop alive until its own loop has shut it down.
    Executor& executor = loop->executor();
    executor.Post([loop = std::move(loop)] { loop->Shutdown(); });
  }
  loops_.clear();
}

absl::StatusOr<Address> Control::Listen(Network& network, const Address& on) {
  // A copy of the loops: a connection in transit can arrive after this object is destroyed.
  auto accepted = [loops = loops_](Executor& owner, std::unique_ptr<ByteStream> stream) {
    for (const std::shared_ptr<IoLoop>& loop : loops) {
      if (&loop->executor() != &owner) continue;
      if (loop->pusher() != nullptr) loop->pusher()->Accept(std::move(stream));
      return;
    }
  };
  auto pick = [this]() -> Executor& {
    return loops_[next_accept_loop_++ % loops_.size()]->executor();
  };
  auto listener = network.Listen(control_, on, std::move(pick), std::move(accepted));
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return listener_->address();
}

uint64_t Control::StartPull(PullSpec spec, DataPlane::PullDone done) {
  const uint64_t handle = next_handle_++;
  const size_t loop = LoopFor(spec.sender);
  pulls_.emplace(handle, Pull{loop, std::move(done)});
  ++pulls_on_loop_[loop];
  loops_[loop]->executor().Post([loop = loops_[loop], handle, spec = std::move(spec)]() mutable {
    // After Shutdown the pull is dropped: the data plane is gone, and its callbacks with it.
    if (loop->puller() != nullptr) loop->puller()->Start(handle, std::move(spec));
  });
  return handle;
}

// Returns the loop with the fewest pulls. Among equals, prefers the loop determined by the peer,
// whose pool has connections to it, and then the loops that follow.
size_t Control::LoopFor(const NodeKey& peer) const {
  const size_t own = peer.node % loops_.size();
  size_t best = own;
  for (size_t i = 1; i < loops_.size(); ++i) {
    const size_t other = (own + i) % loops_.size();
    if (pulls_on_loop_[other] < pulls_on_loop_[best]) best = other;
  }
  return best;
}

void Control::CancelPull(uint64_t handle) {
  const auto pull = pulls_.find(handle);
  if (pull == pulls_.end()) return;
  // Only its own loop can end the pull, so `done` is still called, from OnPullEnded.
  const std::shared_ptr<IoLoop>& loop = loops_[pull->second.loop];
  loop->executor().Post([loop, handle] {
    if (loop->puller() != nullptr) loop->puller()->Cancel(handle);
  });
}

Executor* Control::LoopOf(uint64_t handle) const {
  const auto pull = pulls_.find(handle);
  return pull == pulls_.end() ? nullptr : &loops_[pull->second.loop]->executor();
}

void Control::OnPullEnded(size_t loop, uint64_t handle, const PullOutcome& outcome) {
  const auto pull = pulls_.find(handle);
  PHALANX_CHECK(pull != pulls_.end() && pull->second.loop == loop, "a pull ends once");
  // Moved out first, so that `done` can start or cancel other pulls.
  DataPlane::PullDone done = std::move(pull->second.done);
  pulls_.erase(pull);
  --pulls_on_loop_[loop];
  done(outcome);
}

// The answer to one request. The destructor refuses the request if there was no answer.
class Control::PendingPush {
 public:
  PendingPush(std::weak_ptr<Control> side, size_t loop, Pusher::PushId push, ServeRequest request)
      : side_(std::move(side)), loop_(loop), push_(push), request_(std::move(request)) {}
  PendingPush(PendingPush&&) = default;
  ~PendingPush() { (*this)(absl::UnavailableError("the request was dropped")); }

  void operator()(absl::StatusOr<ServeGrant> answer) {
    const std::shared_ptr<Control> control = std::exchange(side_, {}).lock();
    if (control != nullptr) control->Answer(loop_, push_, request_, std::move(answer));
  }

 private:
  // Empty after a call, or after a move.
  std::weak_ptr<Control> side_;
  size_t loop_;
  Pusher::PushId push_;
  ServeRequest request_;
};

void Control::OnPushRequested(size_t loop, Pusher::PushId push, const ServeRequest& request) {
  // After Shutdown there is no loop to send the answer to.
  if (loops_.empty()) return;
  // Requests that wait for an answer count, too: otherwise many requests could pass the limit
  // before the first answer.
  const size_t pushes = pushes_.size() + requests_waiting_;
  ++requests_waiting_;
  PendingPush reply(weak_from_this(), loop, push, request);
  if (pushes >= static_cast<size_t>(options_.max_pushes)) {
    return reply(absl::ResourceExhaustedError(
        absl::StrCat("node ", options_.self.ToString(), " already serves ", pushes, " pulls")));
  }
  serve_(request, std::move(reply));
}

void Control::Answer(size_t loop, Pusher::PushId push, const ServeRequest& request,
                     absl::StatusOr<ServeGrant> answer) {
  --requests_waiting_;
  // After Shutdown the grant is destroyed here, on the control loop.
  if (loops_.empty()) return;
  if (answer.ok()) {
    PHALANX_CHECK(answer->from != nullptr, "a grant has a buffer");
    pushes_[{loop, push}] = {request.object, request.generation};
  }
  loops_[loop]->executor().Post([loop = loops_[loop], push, answer = std::move(answer)]() mutable {
    loop->Grant(push, std::move(answer));
  });
}

void Control::OnPushEnded(size_t loop, Pusher::PushId push) { pushes_.erase({loop, push}); }

void Control::OnLinkRequested(IncomingLink incoming) {
  if (on_link_ != nullptr && !loops_.empty()) on_link_(std::move(incoming));
}

void Control::AbortPushes(const ObjectId& object, const Generation& generation,
                          const absl::Status& reason) {
  for (const auto& [key, push] : pushes_) {
    if (push.object != object || push.generation != generation) continue;
    const std::shared_ptr<IoLoop>& loop = loops_[key.first];
    // The text is copied, since a status must not be shared between threads (see
    // TransferBuffer::Close).
    loop->executor().Post([loop, id = key.second, text = std::string(reason.message())] {
      if (loop->pusher() != nullptr) loop->pusher()->Abort(id, text);
    });
  }
}

DataPlaneStats Control::stats() const {
  const DataPlaneCounters& counters = shared_->counters;
  DataPlaneStats stats;
  stats.bytes_sent = DataPlaneCounters::Get(counters.bytes_sent);
  stats.bytes_received = DataPlaneCounters::Get(counters.bytes_received);
  stats.bytes_wasted = DataPlaneCounters::Get(counters.bytes_wasted);
  stats.pulls_active = static_cast<int>(pulls_.size());
  stats.pushes_active = static_cast<int>(pushes_.size());
  stats.connections = shared_->budget->open();
  stats.handshakes_refused = DataPlaneCounters::Get(counters.handshakes_refused);
  stats.frames_refused = DataPlaneCounters::Get(counters.frames_refused);
  return stats;
}

template <typename T>
absl::Status CheckWithin(absl::string_view name, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", not from ", least, " to ", most));
}
absl::Status CheckWithin(absl::string_view name, absl::Duration value, absl::Duration least,
                         absl::Duration most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", absl::FormatDuration(value),
                                                 ", not from ", absl::FormatDuration(least), " to ",
                                                 absl::FormatDuration(most)));
}

absl::Status Validate(const DataPlaneOptions& options) {
  PHALANX_RETURN_IF_ERROR(
      CheckWithin<size_t>("segment size", options.segment_bytes, 1, kMaxSegmentBytes));
  PHALANX_RETURN_IF_ERROR(
      CheckWithin("stall timeout", options.stall_timeout, absl::Milliseconds(4), absl::Minutes(1)));
  for (const auto& [name, time] : {std::pair("connect timeout", options.connect_timeout),
                                   std::pair("handshake timeout", options.handshake_timeout),
                                   std::pair("idle timeout", options.idle_timeout)}) {
    PHALANX_RETURN_IF_ERROR(CheckWithin(name, time, absl::Milliseconds(1), absl::Hours(24)));
  }
  for (const auto& [name, limit] :
       {std::pair("limit of pushes", options.max_pushes),
        std::pair("limit of connections", options.max_connections),
        std::pair("limit of unproven connections", options.max_unproven_connections)}) {
    PHALANX_RETURN_IF_ERROR(CheckWithin(name, limit, 1, 1 << 20));
  }
  return CheckWithin("egress limit", options.max_egress, 0.0, 1e15);
}

class DataPlaneImpl final : public DataPlane {
 public:
  DataPlaneImpl(Network& network, std::shared_ptr<Control> control)
      : network_(network), control_(std::move(control)) {}
  ~DataPlaneImpl() override { control_->Shutdown(); }

  absl::StatusOr<Address> Listen(const Address& on) override {
    return control_->Listen(network_, on);
  }
  PullHandle StartPull(PullSpec spec, PullDone done) override {
    return control_->StartPull(std::move(spec), std::move(done));
  }
  void CancelPull(PullHandle handle) override { control_->CancelPull(handle); }
  Executor* LoopOf(PullHandle handle) const override { return control_->LoopOf(handle); }
  void AbortPushes(const ObjectId& object, const Generation& generation,
                   absl::Status reason) override {
    control_->AbortPushes(object, generation, reason);
  }
  void SetLinkHandler(LinkHandler handler) override {
    control_->SetLinkHandler(std::move(handler));
  }
  DataPlaneStats stats() const override { return control_->stats(); }

 private:
  Network& network_;
  const std::shared_ptr<Control> control_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(Network& network, Executor& control,
                                                             const std::vector<Executor*>& io,
                                                             DataPlaneOptions options,
                                                             ServeHandler serve) {
  PHALANX_CHECK(!io.empty(), "a data plane needs an I/O loop");
  PHALANX_RETURN_IF_ERROR(Validate(options));
  options.handshake.self = options.self;
  auto side = std::make_shared<Control>(control, std::move(options), std::move(serve));
  side->Start(network, io);
  return std::make_unique<DataPlaneImpl>(network, std::move(side));
}

}  // namespace phalanx::net
