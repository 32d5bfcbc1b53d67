// CorruptingNetwork: a network that forwards to another one, but changes one incoming byte of each
// connection that is dialed through it. Testonly.
#ifndef PHALANX_NET_TESTING_CORRUPTING_NETWORK_H_
#define PHALANX_NET_TESTING_CORRUPTING_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "src/net/stream/byte_stream.h"

namespace phalanx::net::testing {

class CorruptingStream final : public ByteStream {
 public:
  CorruptingStream(std::unique_ptr<ByteStream> base, uint64_t at)
      : base_(std::move(base)), at_(at) {}

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    const absl::StatusOr<size_t> size = base_->Read(into);
    if (!size.ok()) return size;
    uint64_t begin = read_;
    read_ += *size;
    for (const iovec& part : into) {
      const uint64_t end = begin + part.iov_len;
      if (begin <= at_ && at_ < end && at_ < read_) {
        static_cast<char*>(part.iov_base)[at_ - begin] ^= 0x40;
      }
      begin = end;
    }
    return size;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override { return base_->Write(from); }
  void OnReadable(Task ready) override { base_->OnReadable(std::move(ready)); }
  void OnWritable(Task ready) override { base_->OnWritable(std::move(ready)); }
  void SetUnsentLimit(size_t bytes) override { base_->SetUnsentLimit(bytes); }
  void SetUrgent() override { base_->SetUrgent(); }
  absl::Duration RoundTrip() const override { return base_->RoundTrip(); }
  std::string peer() const override { return base_->peer(); }
  void Close() override { base_->Close(); }

 private:
  const std::unique_ptr<ByteStream> base_;
  const uint64_t at_;
  uint64_t read_ = 0;
};

class CorruptingNetwork final : public Network {
 public:
  // `at`: the index of the changed byte of each stream, from 0. `base` outlives this object.
  CorruptingNetwork(Network& base, uint64_t at) : base_(base), at_(at) {}

  void Dial(Executor& executor, const Address& to, Instant deadline, DialDone done) override {
    base_.Dial(executor, to, deadline,
               [at = at_, done = std::move(done)](
                   absl::StatusOr<std::unique_ptr<ByteStream>> stream) mutable {
                 if (!stream.ok()) return done(stream.status());
                 done(std::make_unique<CorruptingStream>(*std::move(stream), at));
               });
  }
  absl::StatusOr<std::unique_ptr<Listener>> Listen(Executor& executor, const Address& on,
                                                   absl::AnyInvocable<Executor&()> pick,
                                                   Accepted accepted) override {
    return base_.Listen(executor, on, std::move(pick), std::move(accepted));
  }

 private:
  Network& base_;
  const uint64_t at_;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_CORRUPTING_NETWORK_H_
