// Fuzzes PullReceiver with a sender that sends any frames. Bytes never land outside the place after
// the watermark, the watermark never passes the bytes that the sender sent, and the pull always
// ends.
//
// The input is a list of frames as in frame_fuzz.cc. Where the field is 0, the number of the pull
// and the correct offset are filled in, so that the fuzzer reaches deep states.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/common/check.h"
#include "src/net/pull/pull_receiver.h"

namespace phalanx::net {
namespace {

constexpr uint64_t kObjectBytes = 4096;
constexpr int kSlices = 3;

// An executor without time: no timers fire and tasks are dropped, so everything happens inside the
// calls.
class StillExecutor final : public Executor {
 public:
  void Post(Task) override {}
  Instant Now() const override { return Instant::FromNanos(1'000'000'000); }
  TimerId RunAt(Instant, Task) override { return ++last_; }
  void Cancel(TimerId) override {}
  bool InLoop() const override { return true; }

 private:
  TimerId last_ = 0;
};

// A stream that returns `bytes` in pieces, then end of file. Accepts every write.
class TapeStream final : public ByteStream {
 public:
  TapeStream(std::string bytes, size_t piece, Task& readable)
      : bytes_(std::move(bytes)), piece_(piece), readable_(readable) {}

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    if (at_ == bytes_.size()) return absl::OutOfRangeError("end of file");
    size_t taken = 0;
    for (const iovec& part : into) {
      const size_t n = std::min({part.iov_len, piece_ - taken, bytes_.size() - at_});
      bytes_.copy(static_cast<char*>(part.iov_base), n, at_);
      at_ += n;
      taken += n;
    }
    return taken;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override {
    size_t size = 0;
    for (const iovec& part : from) size += part.iov_len;
    return size;
  }
  void OnReadable(Task ready) override { readable_ = std::move(ready); }
  void OnWritable(Task) override {}
  void SetUnsentLimit(size_t) override {}
  absl::Duration RoundTrip() const override { return absl::ZeroDuration(); }
  std::string peer() const override { return "tape"; }
  void Close() override {}

 private:
  const std::string bytes_;
  const size_t piece_;
  Task& readable_;
  size_t at_ = 0;
};

class Watcher final : public PullReceiver::Observer {
 public:
  void PullEnded(PullOutcome outcome) override {
    PHALANX_CHECK(!ended.has_value(), "a pull ends once");
    ended = std::move(outcome);
  }
  void StreamReleased(std::unique_ptr<ByteStream>) override {
    PHALANX_CHECK(ended.has_value() && !released, "released once, after the end");
    released = true;
  }

  std::optional<PullOutcome> ended;
  bool released = false;
};

// As in frame_fuzz.cc. Offset byte 0 means "the current end of the slice", and every byte is the
// letter 's'.
std::string Tape(absl::string_view input) {
  constexpr size_t kFields = 5;
  std::string stream;
  uint64_t cursor[256] = {};
  while (input.size() >= kFields) {
    const auto field = [&input](size_t i) { return static_cast<uint8_t>(input[i]); };
    FrameHeader header;
    header.type = static_cast<FrameType>(field(0));
    header.flags = field(1);
    header.slice = field(2);
    header.pull = 1;
    const size_t length = size_t{field(3)} * 8;
    std::string payload;
    if (header.type == FrameType::kSegment) {
      header.offset = cursor[header.slice] + field(4);
      cursor[header.slice] += length;
      payload.assign(length, 's');
      input.remove_prefix(kFields);
    } else {
      input.remove_prefix(kFields);
      payload = std::string(input.substr(0, std::min(length, kMaxControlBytes)));
      input.remove_prefix(payload.size());
      if (header.type == FrameType::kAccept && payload.empty()) {
        payload = EncodePayload(AcceptPayload{{{1, 1}, 1}, kObjectBytes, kSlices});
      }
    }
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    if (header.type != FrameType::kSegment || (header.flags & kSegmentChecked) != 0) {
      header.payload_check = FrameCheck(payload);
    }
    const FrameHeaderBytes bytes = EncodeFrameHeader(header);
    stream.append(bytes.data(), bytes.size());
    stream.append(payload);
  }
  return stream;
}

void CheckBytes(const TransferBuffer& buffer) {
  for (int slice = 0; slice < kSlices; ++slice) {
    const absl::Span<const char> place = buffer.slice(slice);
    for (uint64_t i = 0; i < buffer.watermark(slice); ++i) {
      PHALANX_CHECK(place[i] == 's', "only what was sent is published");
    }
  }
}

void Run(absl::string_view input, size_t piece) {
  std::vector<char> memory(kObjectBytes, '.');
  auto buffer = std::make_shared<TransferBuffer>(SliceLayout{kObjectBytes, kSlices},
                                                 absl::MakeSpan(memory), nullptr);
  StillExecutor executor;
  Task readable;
  std::vector<char> scratch(64);
  DataPlaneCounters counters;
  Watcher watcher;
  {
    const PullSpec spec = {{1, 1}, "", ObjectId::FromName("fuzz", "x"), {{1, 1}, 1}, buffer, 0b101};
    PullReceiver receiver(executor, std::make_unique<TapeStream>(Tape(input), piece, readable), 1,
                          spec, {absl::Seconds(1), false}, absl::MakeSpan(scratch), counters,
                          watcher);
    receiver.Start();
    while (!watcher.released) std::exchange(readable, nullptr)();
    CheckBytes(*buffer);
    PHALANX_CHECK(buffer->watermark(1) == 0, "slice 1 was not requested");
    const uint64_t wanted = buffer->layout().Size(0) + buffer->layout().Size(2);
    PHALANX_CHECK(watcher.ended->status.ok() == (buffer->bytes_present() == wanted),
                  "OK means full");
  }
}

}  // namespace
}  // namespace phalanx::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  phalanx::net::Run(absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1),
                    1 + data[0] * 4u);
  return 0;
}
