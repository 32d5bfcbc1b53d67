// A stranger at the port of a shard: bytes of a control stream, cut anywhere. Nothing aborts. Read
// at once and in pieces, the stream delivers the same frames and the same end.
//
// The first byte seeds the cuts. If it is even, the rest is sent unchanged. Otherwise the rest is a
// list of (kind, length, payload), which is sent as frames behind a preamble.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"
#include "src/directory/session/byte_message_stream.h"
#include "src/directory/session/session_link.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::directory {
namespace {

// Sends its bytes in pieces of at most so many, then ends.
class Speaker final : public net::ByteStream {
 public:
  Speaker(Executor& executor, absl::string_view words, uint64_t seed, size_t longest)
      : executor_(executor), words_(words), seed_(seed), longest_(longest) {}

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    if (words_.empty()) return absl::UnavailableError("gone");
    seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
    const size_t size = std::min({1 + (seed_ >> 33) % longest_, words_.size(), into[0].iov_len});
    words_.copy(static_cast<char*>(into[0].iov_base), size);
    words_.remove_prefix(size);
    return size;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override { return from[0].iov_len; }
  void OnReadable(Task ready) override {
    if (!closed_) executor_.Post(std::move(ready));
  }
  void OnWritable(Task) override {}
  void SetUnsentLimit(size_t) override {}
  absl::Duration RoundTrip() const override { return absl::Microseconds(50); }
  std::string peer() const override { return "unproven"; }
  void Close() override { closed_ = true; }

 private:
  Executor& executor_;
  absl::string_view words_;
  uint64_t seed_;
  const size_t longest_;
  bool closed_ = false;
};

std::string InFrames(absl::string_view list) {
  std::string words(kStreamPreamble);
  while (list.size() >= 2) {
    const auto kind = static_cast<uint8_t>(list[0]);
    const absl::string_view payload = list.substr(2, static_cast<uint8_t>(list[1]));
    list.remove_prefix(2 + payload.size());
    ByteWriter out(words);
    out.U32(static_cast<uint32_t>(payload.size()));
    out.U8(kind);
    words.append(payload.data(), payload.size());
  }
  return words;
}

// The delivered frames, and the end.
std::string Transcript(absl::string_view words, uint64_t seed, size_t longest) {
  sim::SimScheduler scheduler({});
  const auto process = scheduler.NewProcess("shard");
  Executor& loop = process->NewExecutor("control");
  std::string transcript;
  bool closed = false;
  std::unique_ptr<ShardStream> stream;
  loop.Post([&] {
    stream = NewByteShardStream(loop, std::make_unique<Speaker>(loop, words, seed, longest), "");
    stream->Start({.on_message =
                       [&](const v1::NodeFrame& frame) {
                         PHALANX_CHECK(!closed, "nothing follows the end");
                         PHALANX_CHECK(frame.ByteSizeLong() <= 2 * kMaxFrameBytes, "bounded");
                         absl::StrAppend(&transcript, frame.kind_case(), ":", frame.ByteSizeLong(),
                                         " ");
                       },
                   .on_writable = [] {},
                   .on_closed =
                       [&](const absl::Status& why) {
                         PHALANX_CHECK(!std::exchange(closed, true), "it ends once");
                         absl::StrAppend(&transcript, "closed: ", why.ToString());
                       }});
  });
  scheduler.RunFor(absl::Seconds(5));
  PHALANX_CHECK(closed, "the end of the stream is noticed");
  loop.Post([&] { stream.reset(); });
  scheduler.RunFor(absl::Seconds(5));
  return transcript;
}

}  // namespace
}  // namespace phalanx::directory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phalanx::directory;
  if (size == 0) return 0;
  const absl::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string words = data[0] % 2 == 0 ? std::string(rest) : InFrames(rest);
  const std::string whole = Transcript(words, 1, size_t{1} << 20);
  const std::string pieces = Transcript(words, data[0], 1 + data[0] / 4);
  PHALANX_CHECK(whole == pieces, absl::StrCat(whole, " against ", pieces));
  return 0;
}
