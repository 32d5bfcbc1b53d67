// Fuzzes PullSender with a receiver that sends any frames, cut at any byte, while its object grows
// and ends and time passes. The sender keeps to the protocol, sends only published bytes, and
// returns every grant.
//
// The first byte seeds the cuts; if it is odd, the stream sometimes accepts nothing. The rest is a
// list of actions of three bytes each: see Act. If the first byte is even, the list runs twice,
// read at once and in pieces, and both runs must be answered alike. If the sender closes the
// connection because of a frame (for example a second request before the first was answered, which
// happens only if both are read at once), the receiver has received a prefix of the other run.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/net/push/pull_sender.h"

namespace phalanx::net {
namespace {

constexpr uint64_t kObjectBytes = 4096;
constexpr int kSlices = 3;
constexpr NodeKey kSelf = {1, 1};
constexpr Generation kGeneration = {{1, 1}, 1};

char ByteAt(uint64_t i) { return static_cast<char>(i * 37 + i / 251 + 1); }

// An executor that runs tasks and timers on demand.
class SteppedExecutor final : public Executor {
 public:
  void Post(Task task) override { posted_.push_back(std::move(task)); }
  Instant Now() const override { return now_; }
  TimerId RunAt(Instant when, Task task) override {
    timers_.emplace(std::pair(when, ++last_), std::move(task));
    return last_;
  }
  void Cancel(TimerId id) override {
    std::erase_if(timers_, [id](const auto& timer) { return timer.first.second == id; });
  }
  bool InLoop() const override { return true; }

  void RunPosted() {
    for (Task& task : std::exchange(posted_, {})) task();
  }
  void Pass(absl::Duration time) {
    const Instant until = now_ + time;
    while (!timers_.empty() && timers_.begin()->first.first <= until) {
      auto timer = timers_.extract(timers_.begin());
      now_ = std::max(now_, timer.key().first);
      timer.mapped()();
    }
    now_ = until;
  }

 private:
  Instant now_ = Instant::FromNanos(1'000'000'000);
  std::vector<Task> posted_;
  std::map<std::pair<Instant, TimerId>, Task> timers_;
  TimerId last_ = 0;
};

// State that the two ends of the connection share.
struct Wire {
  Wire(uint64_t seed, size_t longest_piece, bool slow)
      : seed(seed), longest_piece(longest_piece), slow(slow) {}

  size_t Draw(size_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
  }

  uint64_t seed;
  const size_t longest_piece;
  const bool slow;
  std::string to_sender;
  std::string from_sender;
  Task readable;
  Task writable;
  bool closed = false;
};

class FuzzStream final : public ByteStream {
 public:
  explicit FuzzStream(Wire& wire) : wire_(wire) {}
  ~FuzzStream() override { Close(); }

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    size_t left = std::min(1 + wire_.Draw(wire_.longest_piece), wire_.to_sender.size());
    size_t taken = 0;
    for (const iovec& part : into) {
      const size_t n = std::min(part.iov_len, left);
      wire_.to_sender.copy(static_cast<char*>(part.iov_base), n);
      wire_.to_sender.erase(0, n);
      taken += n;
      left -= n;
    }
    return taken;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override {
    if (wire_.slow && wire_.Draw(2) == 0) return 0;
    size_t left = 1 + wire_.Draw(wire_.longest_piece);
    size_t taken = 0;
    for (const iovec& part : from) {
      const size_t n = std::min(part.iov_len, left);
      wire_.from_sender.append(static_cast<const char*>(part.iov_base), n);
      taken += n;
      left -= n;
    }
    return taken;
  }
  void OnReadable(Task ready) override { wire_.readable = std::move(ready); }
  void OnWritable(Task ready) override { wire_.writable = std::move(ready); }
  void SetUnsentLimit(size_t) override {}
  absl::Duration RoundTrip() const override { return absl::Microseconds(50); }
  std::string peer() const override { return "fuzz"; }
  void Close() override {
    wire_.closed = true;
    wire_.readable = nullptr;
    wire_.writable = nullptr;
  }

 private:
  Wire& wire_;
};

class CountingHost final : public PullSender::Host {
 public:
  void PullRequested(PullSender&, uint32_t pull, ServeRequest request) override {
    PHALANX_CHECK(!requested.has_value() && granted == returned, "one request at a time");
    PHALANX_CHECK(request.slices != 0 && request.patience > absl::ZeroDuration(), "a request");
    requested.emplace(pull, request.generation);
  }
  void GrantReturned(PullSender&, uint32_t, ServeGrant grant) override {
    PHALANX_CHECK(grant.from != nullptr && ++returned <= granted, "a grant comes back once");
  }
  void WentIdle(PullSender&) override { requested.reset(); }
  void BecameLink(PullSender&, std::unique_ptr<ByteStream> stream, LinkPayload) override {
    PHALANX_CHECK(stream != nullptr && !std::exchange(closed, true), "a link ends the sender");
  }
  void SenderClosed(PullSender&) override {
    PHALANX_CHECK(!std::exchange(closed, true), "closed once");
  }

  std::optional<std::pair<uint32_t, Generation>> requested;
  int granted = 0;
  int returned = 0;
  bool closed = false;
};

// Reads the output of the sender as a strict receiver.
class Listener final : public FrameSink {
 public:
  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override {
    PHALANX_CHECK(accepted_ && header.pull == pull_, "a segment of the pull that was accepted");
    PHALANX_CHECK(header.slice < kSlices && header.slice != 1, "of a requested slice");
    const SliceLayout layout = {kObjectBytes, kSlices};
    auto [cursor, first] = cursors_.emplace(header.slice, header.offset);
    PHALANX_CHECK(first || cursor->second == header.offset, "segments without a gap");
    cursor->second += header.payload_bytes;
    PHALANX_CHECK(cursor->second <= layout.Size(header.slice), "within the slice");
    begin_ = layout.Begin(header.slice) + header.offset;
    place_.resize(header.payload_bytes);
    return absl::MakeSpan(place_);
  }
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override {
    for (size_t i = 0; i < arrived; ++i) {
      PHALANX_CHECK(place_[i] == ByteAt(begin_ + i), "only what is published is sent");
    }
    if (arrived == header.payload_bytes) {
      absl::StrAppend(&events, "segment ", header.slice, ":", header.offset, "+", arrived, " ");
    }
    return absl::OkStatus();
  }
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override {
    absl::StrAppend(&events, FrameTypeName(header.type), " ", header.pull, " ");
    const bool answer = header.type == FrameType::kAccept;
    const bool first = header.pull > pull_;
    PHALANX_CHECK(first ? answer || header.type == FrameType::kAborted : header.pull == pull_,
                  "every pull is answered, in order");
    PHALANX_CHECK(first || (accepted_ && !answer), "an answer is given once, and ends once");
    pull_ = header.pull;
    accepted_ = answer || header.type == FrameType::kStarved;
    if (answer) {
      cursors_.clear();
      const auto accept = DecodeAccept(payload);
      PHALANX_CHECK(accept.ok() && accept->generation == kGeneration, "the requested generation");
    } else if (header.type == FrameType::kAborted) {
      absl::Status reason;
      PHALANX_CHECK(DecodeAborted(payload, reason).ok(), "a reason");
    } else {
      PHALANX_CHECK(DecodeStarved(payload).ok(), "a time");
    }
    return absl::OkStatus();
  }

  std::string events;

 private:
  uint32_t pull_ = 0;
  bool accepted_ = false;
  std::map<int, uint64_t> cursors_;
  uint64_t begin_ = 0;
  std::vector<char> place_;
};

std::string FrameOf(FrameType type, uint8_t flags, uint32_t pull, const std::string& payload) {
  FrameHeader header = ControlHeader(type, pull, payload);
  header.flags = flags;
  const FrameHeaderBytes bytes = EncodeFrameHeader(header);
  return std::string(bytes.data(), bytes.size()) + payload;
}

std::string OpenOf(uint8_t how) {
  OpenPayload open;
  open.sender = {kSelf.node, (how & 1) != 0 ? 2u : 1u};
  open.object = ObjectId::FromName("fuzz", "x");
  open.generation = {kGeneration.creator, (how & 2) != 0 ? 2u : 1u};
  open.sign_of_life = absl::Milliseconds(100);
  open.wants = {{0, (how >> 2) * 25u}, {2, (how >> 2) * 25u}};
  return EncodePayload(open);
}

struct Outcome {
  std::string events;
  uint64_t refused = 0;
};

class Conversation {
 public:
  Conversation(uint64_t seed, size_t longest_piece, bool slow) : wire_(seed, longest_piece, slow) {
    sender_ = std::make_unique<PullSender>(
        1, executor_, std::make_unique<FuzzStream>(wire_), NodeKey{2, 1},
        PullSender::Options{kSelf, 100, false, absl::Seconds(60)}, limiter_,
        absl::MakeSpan(scratch_), counters_, host_);
    sender_->Start("");
  }

  // The frames that the receiver has received, and the result.
  Outcome Run(absl::string_view acts) {
    for (; acts.size() >= 3 && !host_.closed; acts.remove_prefix(3)) {
      Act(static_cast<uint8_t>(acts[0]), static_cast<uint8_t>(acts[1]),
          static_cast<uint8_t>(acts[2]));
    }
    if (!host_.closed) Settle();
    const bool pushing = !host_.closed && sender_->Stop().from != nullptr;
    PHALANX_CHECK(host_.granted == host_.returned + (pushing ? 1 : 0), "every grant comes back");
    sender_.reset();
    PHALANX_CHECK(wire_.closed, "a sender that is gone has closed its stream");
    Listener listener;
    std::vector<char> scratch(100);
    PHALANX_CHECK(FrameReader(listener, absl::MakeSpan(scratch)).Feed(wire_.from_sender).ok(),
                  "what is sent is well formed");
    return {listener.events, counters_.frames_refused.load()};
  }

 private:
  void Act(uint8_t what, uint8_t a, uint8_t b) {
    // Frames accumulate until another action; the cuts can fall anywhere.
    if (what % 8 >= 4 && what % 8 != 7) Settle();
    if (host_.closed) return;
    const int slice = a % kSlices;
    switch (what % 8) {
      case 0:
      case 1:
        wire_.to_sender += FrameOf(FrameType::kOpen, what & 8 ? kWithChecksums : 0, a, OpenOf(b));
        return;
      case 2:
        wire_.to_sender += FrameOf(FrameType::kCancel, 0, a, "");
        return;
      case 3:
        wire_.to_sender += FrameOf(static_cast<FrameType>(b % 10), 0, a, "");
        return;
      case 4:
        Grow(slice, std::min(buffer_->watermark(slice) + b * 8u, buffer_->layout().Size(slice)));
        return Settle();
      case 5:
        if (a % 4 == 0) buffer_->Close(b == 0 ? absl::OkStatus() : absl::AbortedError("closed"));
        sender_->Abort(a, "aborted");
        return Settle();
      case 6:
        executor_.Pass(absl::Milliseconds(a * 10));
        return Settle();
      default:
        wire_.to_sender += std::string({static_cast<char>(a), static_cast<char>(b)});
    }
  }

  void Grow(int slice, uint64_t to) {
    const absl::Span<char> place = buffer_->slice(slice);
    const uint64_t begin = buffer_->layout().Begin(slice);
    for (uint64_t i = buffer_->watermark(slice); i < to; ++i) place[i] = ByteAt(begin + i);
    buffer_->Publish(slice, to);
  }

  // Runs until nothing more happens unless time passes.
  void Settle() {
    for (bool more = true; more && !host_.closed;) {
      executor_.RunPosted();
      more = !wire_.to_sender.empty() || wire_.writable != nullptr;
      if (wire_.readable != nullptr && !wire_.to_sender.empty()) {
        std::exchange(wire_.readable, nullptr)();
      } else if (wire_.writable != nullptr) {
        std::exchange(wire_.writable, nullptr)();
      } else if (host_.requested.has_value()) {
        Answer();
        more = true;
      }
    }
  }

  void Answer() {
    const auto [pull, generation] = *std::exchange(host_.requested, std::nullopt);
    if (generation != kGeneration) return sender_->Grant(pull, absl::NotFoundError("another"));
    ++host_.granted;
    sender_->Grant(pull, ServeGrant{buffer_, nullptr});
  }

  Wire wire_;
  SteppedExecutor executor_;
  std::vector<char> memory_ = std::vector<char>(kObjectBytes, '.');
  const std::shared_ptr<TransferBuffer> buffer_ = std::make_shared<TransferBuffer>(
      SliceLayout{kObjectBytes, kSlices}, absl::MakeSpan(memory_), nullptr);
  EgressLimiter limiter_{0};
  std::vector<char> scratch_ = std::vector<char>(64);
  DataPlaneCounters counters_;
  CountingHost host_;
  std::unique_ptr<PullSender> sender_;
};

}  // namespace
}  // namespace phalanx::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using phalanx::net::Conversation;
  using phalanx::net::Outcome;
  if (size == 0) return 0;
  const absl::string_view acts(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool slow = data[0] % 2 != 0;
  const Outcome pieces = Conversation(data[0], 1 + data[0] / 2u, slow).Run(acts);
  if (slow) return 0;
  const Outcome whole = Conversation(1, size_t{1} << 20, false).Run(acts);
  const std::string both = absl::StrCat(whole.events, "against ", pieces.events);
  if (whole.refused + pieces.refused == 0) PHALANX_CHECK(whole.events == pieces.events, both);
  PHALANX_CHECK(absl::StartsWith(pieces.events, whole.events) ||
                    absl::StartsWith(whole.events, pieces.events),
                both);
  return 0;
}
