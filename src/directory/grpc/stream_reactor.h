// The common part of a gRPC bidirectional stream for both ends: one read and one write in flight,
// an orderly end, and the step from gRPC's threads to the executor of the stream's owner.
//
//   owner's executor                         gRPC's threads
//   GrpcStream (owned by its user) ──────►┌───────────────┐
//     Send, Close                         │ StreamReactor │◄── OnReadDone, OnWriteDone,
//     on_message, on_writable, on_closed ◄┤  (shared)     │    OnCancel, OnDone
//                                         └───────────────┘
//
// Invariants
//  1. At most one read and one write are in flight; `in_` and `out_` belong to them.
//  2. Operations start only before End, which is called once, after the write in flight. After End
//     only a reaction can start a read, because gRPC can destroy the call as soon as no other work
//     is left.
//  3. The reactor lives until gRPC's last call (OnDone) and until its GrpcStream is destroyed.
//     Every path reaches OnDone: if the peer does not let a closing stream end, the reactor cancels
//     it after kLingerMs. gRPC's threads never touch the executor after that.
//
// Thread rule: GrpcStream on its executor; gRPC's threads only post to it.
#ifndef PHALANX_DIRECTORY_GRPC_STREAM_REACTOR_H_
#define PHALANX_DIRECTORY_GRPC_STREAM_REACTOR_H_

#include <grpcpp/alarm.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "src/common/check.h"
#include "src/common/threads/mutex.h"
#include "src/common/time/executor.h"
#include "src/directory/session/message_stream.h"

namespace phalanx::directory {

// The time that a closed stream gets to send what is queued.
inline constexpr int kLingerMs = 1000;

// `Reactor` is grpc::ClientBidiReactor<Out, In> or grpc::ServerBidiReactor<In, Out>.
template <typename Out, typename In, typename Reactor>
class StreamReactor : public Reactor,
                      public std::enable_shared_from_this<StreamReactor<Out, In, Reactor>> {
 public:
  using Handlers = typename MessageStream<Out, In>::Handlers;

  // --- On the executor.

  void Start(Handlers handlers) {
    PHALANX_CHECK(handlers_ == nullptr, "a stream is started once");
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
    MutexLock lock(mu_);
    // The call was cancelled before its owner started it. gRPC can be about to call OnDone, and a
    // read would make it call OnDone again.
    if (ended_) return PostClosed(why_);
    Read();
  }

  bool writable() {
    MutexLock lock(mu_);
    wake_when_writable_ = write_in_flight_ || closing_;
    return handlers_ != nullptr && !wake_when_writable_;
  }

  void Send(const Out& frame) {
    MutexLock lock(mu_);
    PHALANX_CHECK(handlers_ != nullptr && !write_in_flight_, "one frame at a time");
    if (closing_) return;
    out_ = frame;
    write_in_flight_ = true;
    this->StartWrite(&out_);
  }

  // After this no callback runs, and gRPC's threads no longer use the executor.
  void Close(const absl::Status& why) {
    handlers_.reset();
    MutexLock lock(mu_);
    if (std::exchange(executor_, nullptr) == nullptr || done_) return;
    if (!ended_) Read();
    BeginClose(why);
    Linger();
  }

 protected:
  // `drains`: the call ends only when everything that the peer sent has been read.
  StreamReactor(Executor& executor, bool drains) : drains_(drains), executor_(&executor) {}

  // Ends the call. Called once, after the last write. After this no operation starts except reads
  // in reactions.
  virtual void End(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;
  virtual void Cancel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  // The reactor holds a reference to itself from the beginning of the call to OnDone.
  void KeepSelf() { self_ = this->shared_from_this(); }

  // --- On gRPC's threads.

  void OnReadDone(bool ok) override {
    MutexLock lock(mu_);
    read_in_flight_ = false;
    if (!ok) return PeerEnded();
    if (executor_ != nullptr) {
      executor_->Post([self = this->shared_from_this()] { self->Deliver(); });
    } else if (drains_ || !ended_) {
      Read();
    }
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    write_in_flight_ = false;
    out_ = Out();
    if (closing_) return EndOnce();
    if (ok && executor_ != nullptr && std::exchange(wake_when_writable_, false)) {
      executor_->Post([self = this->shared_from_this()] { self->Written(); });
    }
  }

  // All later reads would fail.
  virtual void PeerEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  // Begins the end; `why` is the status for the peer.
  void BeginClose(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (std::exchange(closing_, true)) return;
    why_ = why;
    if (!write_in_flight_) EndOnce();
  }

  // Notifies the owner.
  void PostClosed(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (executor_ == nullptr) return;
    executor_->Post([self = this->shared_from_this(), status = std::move(status)]() mutable {
      if (const auto handlers = std::exchange(self->handlers_, nullptr)) {
        handlers->on_closed(std::move(status));
      }
    });
  }

  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (done_ || read_in_flight_) return;
    read_in_flight_ = true;
    this->StartRead(&in_);
  }

  // The call has ended: returns the reactor's reference to itself, which the caller drops without
  // the lock.
  std::shared_ptr<StreamReactor> Done() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    done_ = true;
    return std::move(self_);
  }

  mutable Mutex mu_;
  bool read_in_flight_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;

 private:
  void EndOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!std::exchange(ended_, true)) End(why_);
  }

  void Linger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    alarm_.Set(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kLingerMs, GPR_TIMESPAN)),
        [weak = this->weak_from_this()](bool expired) {
          const auto self = expired ? weak.lock() : nullptr;
          if (self == nullptr) return;
          MutexLock lock(self->mu_);
          if (!self->done_) self->Cancel();
        });
  }

  // On the executor. Starts the next read before the handler runs, so that the two overlap.
  void Deliver() {
    const auto handlers = handlers_;
    if (handlers == nullptr) return;
    In message = std::move(in_);
    {
      MutexLock lock(mu_);
      if (!ended_) Read();
    }
    handlers->on_message(std::move(message));
  }

  void Written() {
    if (const auto handlers = handlers_) handlers->on_writable();
  }

  const bool drains_;

  // Used only on the executor. Each caller of a handler copies the pointer, so that a callback can
  // destroy its stream.
  std::shared_ptr<Handlers> handlers_;

  // Owned by the operations in flight.
  In in_;
  Out out_;

  Executor* executor_ ABSL_GUARDED_BY(mu_);  // null once the owner gets no more callbacks
  bool write_in_flight_ ABSL_GUARDED_BY(mu_) = false;
  bool wake_when_writable_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<StreamReactor> self_ ABSL_GUARDED_BY(mu_);
};

// A MessageStream over a reactor.
template <typename Out, typename In, typename Reactor>
class GrpcStream final : public MessageStream<Out, In> {
 public:
  GrpcStream(std::shared_ptr<Reactor> reactor, std::string peer)
      : reactor_(std::move(reactor)), peer_(std::move(peer)) {}
  ~GrpcStream() override { reactor_->Close(absl::CancelledError("the stream was dropped")); }

  void Start(typename MessageStream<Out, In>::Handlers handlers) override {
    reactor_->Start(std::move(handlers));
  }
  bool writable() const override { return reactor_->writable(); }
  void Send(const Out& frame) override { reactor_->Send(frame); }
  void Close(absl::Status why) override { reactor_->Close(why); }
  std::string peer() const override { return peer_; }

 private:
  const std::shared_ptr<Reactor> reactor_;
  const std::string peer_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_STREAM_REACTOR_H_
