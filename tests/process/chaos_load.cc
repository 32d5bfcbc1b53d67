// One client of a chaos run: it puts, reads, pins, deletes and puts again through the node of this
// host, checks every byte that it reads, and writes one line for each call that started or ended.
//
//   chaos_load ADDRESS run WRITER SEED WRITERS [ORPHAN...]   until SIGTERM
//   chaos_load ADDRESS check ROOM < lines "OBJECT ATTEMPT"   each must have exactly this attempt;
//                                            one of more than ROOM bytes can get no memory instead
//
// Lines: "B op object attempt", "E op object attempt code text", "V text" (a violation), "S object"
// (no memory for it). Exits with 0; with 3 if the node is gone; with 9 if a call is stuck.
//
// The client also reduces, adds to and closes reductions, cancels some of them, and checks every
// word of the results: see chaos_sums.h.
//
// All clients write objects 0 to 47. The other objects are writer << 20 | slot, and only that
// writer writes and deletes them. The bytes and size of attempt a of object o follow from (o, a);
// the metadata has both, and the first eight bytes are a.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "phalanx/client.h"
#include "tests/process/chaos_sums.h"

namespace {

using phalanx::testing::GroupNow;
using phalanx::testing::kSources;
using phalanx::testing::kSumKinds;
using phalanx::testing::MemberOf;
using phalanx::testing::SumBytes;
using phalanx::testing::SumKind;

constexpr uint64_t kShared = 48;
constexpr unsigned kSlots = 10;
constexpr uint64_t kMaxBytes = 3000008;
// The directory remembers sixty-four deleted generations of an id.
constexpr int kMaxLives = 40;
constexpr size_t kWindow = 8;
constexpr size_t kHeld = 4;
constexpr size_t kSumWindow = 6;
// The number of groups of sources in use at a time; earlier groups are deleted.
constexpr uint64_t kLiveGroups = 2;
// A client that is so many groups late leaves their deletion to others.
constexpr uint64_t kLateGroups = 6;
constexpr uint64_t kDropsPerGroup = 3;
// Longer than any fault and the protocol's waits after it.
constexpr unsigned kStuckSeconds = 60;
constexpr absl::Duration kTimeout = absl::Seconds(4);

volatile std::sig_atomic_t stopping = 0;

void Print(absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(1);
}

void OnStuck(int) {
  constexpr char kText[] = "V a call is stuck: see the last line before this one\n";
  if (write(STDOUT_FILENO, kText, sizeof(kText) - 1) < 0) _exit(1);
  _exit(9);
}

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t SizeOf(uint64_t object, uint64_t attempt) {
  // Every second attempt has the size that all even attempts of the object share.
  const uint64_t draw = Mix(object * 1000003 + (attempt % 2 == 0 ? attempt : 0) + 17);
  const uint64_t limit[] = {200, 40000, 40000, 400000, 400000, kMaxBytes - 8};
  return sizeof(attempt) + (draw >> 8) % limit[draw % 6];
}

uint64_t WordOf(uint64_t object, uint64_t attempt, uint64_t index) {
  return index == 0 ? attempt : Mix(object ^ Mix(attempt)) + index * 0x9e3779b97f4a7c15;
}

// Returns whether `bytes` are the bytes [offset, offset + size) of the attempt.
bool Holds(uint64_t object, uint64_t attempt, uint64_t offset, absl::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t position = offset + at;
    const uint64_t word = WordOf(object, attempt, position / 8);
    const size_t skip = position % 8;
    const size_t size = std::min<size_t>(8 - skip, bytes.size() - at);
    if (std::memcmp(reinterpret_cast<const char*>(&word) + skip, bytes.data() + at, size) != 0) {
      return false;
    }
    at += size;
  }
  return true;
}

void Fill(uint64_t object, uint64_t attempt, absl::Span<char> into) {
  for (size_t at = 0; at < into.size(); at += 8) {
    const uint64_t word = WordOf(object, attempt, at / 8);
    std::memcpy(into.data() + at, &word, std::min<size_t>(8, into.size() - at));
  }
}

phalanx::ObjectId IdOf(phalanx::Client& client, uint64_t object) {
  return client.Id(absl::StrCat("chaos/", object));
}

std::string Metadata(uint64_t object, uint64_t attempt) {
  return absl::StrCat(object, "/", attempt);
}

// Returns the attempt that the metadata of `object` names; nullopt if it names another object or
// none.
std::optional<uint64_t> AttemptOf(uint64_t object, absl::string_view metadata) {
  const std::vector<std::string> parts = absl::StrSplit(metadata, '/');
  uint64_t named = 0;
  uint64_t attempt = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &named) || named != object) return {};
  if (!absl::SimpleAtoi(parts[1], &attempt)) return {};
  return attempt;
}

// Returns the attempt that was read; nullopt after a violation.
std::optional<uint64_t> Verify(uint64_t object, uint64_t offset, uint64_t length,
                               const phalanx::Buffer& buffer) {
  const auto attempt = AttemptOf(object, buffer.metadata());
  if (!attempt.has_value()) {
    Print(absl::StrCat("V object ", object, " has the metadata ", buffer.metadata()));
    return {};
  }
  const uint64_t size = SizeOf(object, *attempt);
  if (buffer.object_size() != size || buffer.size() != std::min(length, size - offset)) {
    Print(absl::StrCat("V object ", object, " attempt ", *attempt, " has ", buffer.size(), " of ",
                       buffer.object_size(), " bytes, not of ", size));
    return {};
  }
  if (!Holds(object, *attempt, offset, buffer.view())) {
    Print(absl::StrCat("V object ", object, " attempt ", *attempt, " has wrong bytes"));
    return {};
  }
  return attempt;
}

class Load {
 public:
  Load(std::shared_ptr<phalanx::Client> client, uint64_t writer, uint64_t seed, uint64_t writers)
      : client_(std::move(client)), writer_(writer), writers_(writers), random_(seed) {}

  int Run(const std::vector<uint64_t>& orphans) {
    for (const uint64_t orphan : orphans) Delete(orphan);
    while (!stopping && !gone_) Step();
    while (!gets_.empty()) Reap();
    while (!sums_.empty()) ReapSum();
    return gone_ ? 3 : 0;
  }

 private:
  struct Pending {
    uint64_t object;
    uint64_t offset;
    uint64_t length;
    phalanx::Future<phalanx::Buffer> future;
  };
  struct Slot {
    uint64_t attempt = 0;  // 0: the object does not exist
    int lives = 0;
  };
  struct Held {
    uint64_t object;
    uint64_t attempt;
    phalanx::Buffer buffer;
  };

  // A call for a sum that has not ended. Its result is in the answer, or is read by a Get.
  struct PendingSum {
    uint64_t group;
    SumKind kind;
    std::optional<phalanx::Future<phalanx::Done>> reduce;
    std::optional<phalanx::Future<phalanx::Buffer>> result;
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Begin(absl::string_view op, uint64_t object, uint64_t attempt = 0) {
    alarm(kStuckSeconds);
    Print(absl::StrCat("B ", op, " ", object, " ", attempt));
  }

  void End(absl::string_view op, uint64_t object, uint64_t attempt, const absl::Status& status,
           absl::string_view text = "") {
    alarm(0);
    Print(absl::StrCat("E ", op, " ", object, " ", attempt, " ",
                       absl::StatusCodeToString(status.code()), " ",
                       status.ok() ? text : status.message()));
    if (absl::IsUnavailable(status)) gone_ = true;
    if (absl::IsInternal(status) || absl::IsDataLoss(status) || absl::IsUnknown(status)) {
      Print(absl::StrCat("V ", op, " of ", object, ": ", status.ToString()));
    }
  }

  // Returns an object of any writer, sometimes one that is never put.
  uint64_t Any() {
    if (Draw(3) == 0) return Draw(kShared);
    const uint64_t writer = 1 + Draw(writers_);
    return writer << 20 | Draw(kSlots);
  }

  void Step() {
    if (Draw(3) == 0) return StepSum();
    const uint64_t draw = Draw(100);
    if (draw < 18) return Write();
    if (draw < 24) return WriteShared();
    if (draw < 32) return Drop();
    if (draw < 35) return (void)Delete(Draw(kShared));
    if (draw < 40) return Stream(Any());
    if (draw < 44) return Many();
    if (draw < 47) return Spread(Any());
    if (draw < 51) return Look(Any());
    if (draw < 54) return Into(Any());
    if (draw < 56) return Abandon();
    if (draw < 62) return LookAtOwn();
    AsyncGet(Any());
  }

  // ---- writing

  void Write() {
    const uint64_t slot = Draw(kSlots);
    Slot& now = slots_[slot];
    if (now.attempt != 0 || now.lives >= kMaxLives) return;
    ++now.lives;
    const uint64_t object = writer_ << 20 | slot;
    const uint64_t attempt = ++attempts_;
    if (Put(object, attempt)) {
      now.attempt = attempt;
    } else {
      now.lives = kMaxLives;
    }
  }

  void WriteShared() { Put(Draw(kShared), ++attempts_ << 24 | writer_); }

  // Returns whether the object is adopted now, with this attempt.
  bool Put(uint64_t object, uint64_t attempt) {
    phalanx::PutOptions options;
    options.metadata = Metadata(object, attempt);
    options.wait_for_adoption = true;
    options.timeout = kTimeout;
    options.slices = Draw(4) == 0 ? 3 : 1;
    const bool in_place = Draw(3) == 0;
    const absl::string_view op = in_place ? "create" : "put";
    Begin(op, object, attempt);
    const auto put =
        in_place ? PutInPlace(object, attempt, options) : PutAtOnce(object, attempt, options);
    const bool existed = put.ok() && put->already_existed;
    End(op, object, attempt, put.status(), existed ? "existed" : "new");
    if (object >= kShared && (existed || absl::IsAlreadyExists(put.status()))) {
      Print(absl::StrCat("V object ", object,
                         ", whose Delete was acknowledged, was there when attempt ", attempt,
                         " was put"));
    }
    return put.ok() && !existed;
  }

  absl::StatusOr<phalanx::PutResult> PutAtOnce(uint64_t object, uint64_t attempt,
                                               const phalanx::PutOptions& options) {
    std::string bytes(SizeOf(object, attempt), '\0');
    Fill(object, attempt, absl::MakeSpan(bytes));
    return client_->Put(IdOf(*client_, object), bytes, options).Wait();
  }

  absl::StatusOr<phalanx::PutResult> PutInPlace(uint64_t object, uint64_t attempt,
                                                const phalanx::PutOptions& options) {
    const uint64_t size = SizeOf(object, attempt);
    auto buffer = client_->Create(IdOf(*client_, object), size, options);
    if (!buffer.ok()) return buffer.status();
    Fill(object, attempt, buffer->span());
    for (uint64_t part = 1; part < 4; ++part) {
      if (auto status = buffer->Publish(size * part / 4); !status.ok()) return status;
      // Other calls end between the parts.
      while (!gets_.empty() && gets_.front().future.ready()) Reap();
    }
    return buffer->Seal().Wait();
  }

  // Writes half an object and never seals it.
  void Abandon() {
    const uint64_t object = writer_ << 20 | (kSlots + Draw(4));
    const uint64_t attempt = ++attempts_;
    phalanx::PutOptions options;
    options.metadata = Metadata(object, attempt);
    options.timeout = kTimeout;
    Begin("abandon", object, attempt);
    auto buffer = client_->Create(IdOf(*client_, object), SizeOf(object, attempt), options);
    absl::Status status = buffer.status();
    if (status.ok()) {
      Fill(object, attempt, buffer->span());
      status = buffer->Publish(buffer->span().size() / 2);
    }
    End("abandon", object, attempt, status);
  }

  // ---- deleting

  void Drop() {
    const uint64_t slot = Draw(kSlots);
    Slot& now = slots_[slot];
    if (now.attempt == 0) return;
    if (!Delete(writer_ << 20 | slot)) now.lives = kMaxLives;
    now.attempt = 0;
  }

  bool Delete(uint64_t object) {
    Begin("delete", object);
    const auto status = client_->Delete(IdOf(*client_, object), kTimeout).Wait().status();
    End("delete", object, 0, status);
    return status.ok();
  }

  // ---- reading

  phalanx::GetOptions Options() const {
    phalanx::GetOptions options;
    options.timeout = kTimeout;
    return options;
  }

  void AsyncGet(uint64_t object) {
    phalanx::GetOptions options = Options();
    options.timeout = absl::Milliseconds(200 + Draw(1500));
    if (Draw(4) == 0) {
      options.offset = Draw(300);
      options.length = 1 + Draw(100000);
    }
    Begin("get", object);
    gets_.push_back(
        {object, options.offset, options.length, client_->Get(IdOf(*client_, object), options)});
    if (gets_.size() >= kWindow) Reap();
  }

  void Reap() {
    Pending get = std::move(gets_.front());
    gets_.pop_front();
    alarm(kStuckSeconds);
    const auto got = get.future.Wait();
    uint64_t attempt = 0;
    if (got.ok()) {
      attempt = Verify(get.object, get.offset, get.length, *got).value_or(0);
      if (get.offset == 0 && get.length == UINT64_MAX) Hold(get.object, attempt, *got);
    }
    End("get", get.object, attempt, got.status());
  }

  // Keeps the view for a while, and checks then that its bytes have not changed.
  void Hold(uint64_t object, uint64_t attempt, phalanx::Buffer buffer) {
    held_.push_back({object, attempt, std::move(buffer)});
    if (held_.size() <= kHeld) return;
    const Held& oldest = held_.front();
    if (!Holds(oldest.object, oldest.attempt, 0, oldest.buffer.view())) {
      Print(absl::StrCat("V object ", oldest.object, " changed while it was pinned"));
    }
    held_.pop_front();
  }

  // Checks that this writer reads the attempts that it has put and not deleted.
  void LookAtOwn() {
    const uint64_t slot = Draw(kSlots);
    const uint64_t expected = slots_[slot].attempt;
    if (expected == 0) return;
    const uint64_t object = writer_ << 20 | slot;
    Begin("own", object, expected);
    const auto got = client_->Pin(IdOf(*client_, object), Options()).Wait();
    uint64_t attempt = 0;
    if (got.ok()) attempt = Verify(object, 0, UINT64_MAX, *got).value_or(0);
    End("own", object, attempt, got.status());
    if ((got.ok() && attempt != expected) || absl::IsNotFound(got.status())) {
      Print(absl::StrCat("V object ", object, " should be attempt ", expected, ", not ", attempt,
                         ": ", got.status().ToString()));
    }
  }

  void Many() {
    std::vector<uint64_t> objects;
    std::vector<phalanx::ObjectId> ids;
    for (int i = 0; i < 4; ++i) {
      objects.push_back(Any());
      ids.push_back(IdOf(*client_, objects.back()));
    }
    phalanx::GetOptions options = Options();
    options.timeout = absl::Seconds(1);
    Begin("many", objects[0]);
    const auto got = client_->GetMany(ids, options).Wait();
    for (size_t i = 0; got.ok() && i < got->size(); ++i) {
      Verify(objects[i], 0, UINT64_MAX, (*got)[i]);
    }
    End("many", objects[0], 0, got.status());
  }

  void Stream(uint64_t object) {
    Begin("stream", object);
    auto stream = client_->GetStream(IdOf(*client_, object), absl::Seconds(1));
    absl::Status status = stream.status();
    std::string read;
    while (status.ok()) {
      const auto next = stream->Next(100000, kTimeout);
      status = next.status();
      if (absl::IsAborted(status)) {
        read.clear();
        status = absl::OkStatus();
        continue;
      }
      if (!next.ok()) break;
      if (next->empty()) break;
      absl::StrAppend(&read, *next);
    }
    uint64_t attempt = 0;
    if (status.ok()) {
      attempt = AttemptOf(object, stream->metadata()).value_or(0);
      if (read.size() != SizeOf(object, attempt) || !Holds(object, attempt, 0, read)) {
        Print(absl::StrCat("V the stream of ", object, " is not attempt ", attempt, ": ",
                           read.size(), " bytes of ", SizeOf(object, attempt)));
      }
    }
    End("stream", object, attempt, status);
  }

  void Into(uint64_t object) {
    std::string bytes(kMaxBytes, '\0');
    phalanx::GetOptions options = Options();
    options.timeout = absl::Seconds(1);
    Begin("into", object);
    const auto size = client_->GetInto(IdOf(*client_, object), absl::MakeSpan(bytes), options);
    uint64_t attempt = 0;
    if (size.ok()) {
      std::memcpy(&attempt, bytes.data(), sizeof(attempt));
      if (*size != SizeOf(object, attempt) ||
          !Holds(object, attempt, 0, absl::string_view(bytes.data(), *size))) {
        Print(absl::StrCat("V the ", *size, " bytes copied of ", object, " are not attempt ",
                           attempt, ", which has ", SizeOf(object, attempt)));
      }
    }
    End("into", object, attempt, size.status());
  }

  // ---- managing

  // Waits until the directory has the broadcast, not until the nodes have the object.
  void Spread(uint64_t object) {
    Begin("broadcast", object);
    const phalanx::ObjectId id = IdOf(*client_, object);
    client_->Broadcast(id, {.timeout = kTimeout});
    End("broadcast", object, 0, client_->ProgressOf(id, {"*"}, kTimeout).Wait().status());
  }

  void Look(uint64_t object) {
    Begin("stat", object);
    const auto stat = client_->Stat(IdOf(*client_, object), kTimeout).Wait();
    End("stat", object, 0, stat.status());
    if (stat.ok() && stat->local && !stat->complete) {
      Print(absl::StrCat("V object ", object, " is complete here but nowhere"));
    }
  }

  // ---- reducing

  uint64_t AnyGroup() { return GroupNow() - Draw(kLiveGroups); }
  phalanx::ObjectId SourceOf(uint64_t group, uint64_t source) {
    return IdOf(*client_, MemberOf(group, source));
  }
  static uint64_t TargetOf(uint64_t group, SumKind kind) {
    return MemberOf(group, kSources + kind);
  }

  void StepSum() {
    while (oldest_ + kLiveGroups <= GroupNow()) EndGroup(oldest_++);
    const uint64_t group = AnyGroup();
    const auto kind = static_cast<SumKind>(Draw(kSumKinds));
    const uint64_t draw = Draw(100);
    if (draw < 40) return PutSource(group, Draw(kSources));
    if (draw < 74) return BeginSum(group, kind);
    if (draw < 84) return LookAtSum(group, kind);
    if (draw < 92) return ExtendSum(group);
    if (draw < 94) return FailSource(group, Draw(kSources));
    if (draw < 95) return DropSum(TargetOf(group, kind));
    if (draw < 96) return DropSum(MemberOf(group, Draw(kSources)));
    PutSource(group, Draw(kSources));
  }

  // Other clients do the same, so each member is deleted several times.
  void EndGroup(uint64_t group) {
    if (GroupNow() - group > kLateGroups) return;
    for (uint64_t i = 0; i < kDropsPerGroup && !gone_; ++i) {
      DropSum(MemberOf(group, (writer_ * kDropsPerGroup + i) % (kSources + kSumKinds)));
    }
  }

  void PutSource(uint64_t group, uint64_t source) {
    const uint64_t attempt = ++attempts_ << 24 | writer_;
    std::string bytes(SumBytes(group), '\0');
    phalanx::testing::FillSource(group, source, attempt, absl::MakeSpan(bytes));
    phalanx::PutOptions options;
    options.timeout = kTimeout;
    options.slices = Draw(6) == 0 ? 3 : 1;
    Begin("source", MemberOf(group, source), attempt);
    const auto put = client_->Put(SourceOf(group, source), bytes, options).Wait();
    End("source", MemberOf(group, source), attempt, put.status());
  }

  void BeginSum(uint64_t group, SumKind kind) {
    const uint64_t count = kind == SumKind::kOpen ? phalanx::testing::kOpenSources : kSources;
    std::vector<phalanx::ObjectId> sources;
    for (uint64_t i = 0; i < count; ++i) sources.push_back(SourceOf(group, i));
    phalanx::ReduceOptions options;
    options.dtype = phalanx::DType::kU64;
    if (kind == SumKind::kAny) options.num_objects = phalanx::testing::kAnySources;
    if (kind == SumKind::kFixed) options.order = phalanx::ReduceOptions::Order::kFixed;
    options.open = kind == SumKind::kOpen;
    if (Draw(2) == 0) options.root = phalanx::ReduceOptions::Root::kAny;
    options.timeout = absl::Milliseconds(500 + Draw(3500));
    const phalanx::ObjectId target = IdOf(*client_, TargetOf(group, kind));
    Begin("sum", TargetOf(group, kind));
    PendingSum sum{group, kind, {}, {}};
    if (Draw(2) == 0) {
      sum.result = client_->AllReduce(target, sources, options);
    } else {
      sum.reduce = client_->Reduce(target, sources, options);
    }
    const bool cancelled = Draw(8) == 0;
    if (cancelled && sum.reduce) sum.reduce->Cancel();
    if (cancelled && sum.result) sum.result->Cancel();
    sums_.push_back(std::move(sum));
    if (sums_.size() >= kSumWindow) ReapSum();
  }

  void ReapSum() {
    PendingSum sum = std::move(sums_.front());
    sums_.pop_front();
    alarm(kStuckSeconds);
    absl::StatusOr<phalanx::Buffer> result;
    if (sum.reduce) {
      const auto done = sum.reduce->Wait();
      const phalanx::ObjectId target = IdOf(*client_, TargetOf(sum.group, sum.kind));
      if (done.ok()) {
        result = client_->Get(target, Options()).Wait();
      } else {
        result = done.status();
      }
    } else {
      result = sum.result->Wait();
    }
    EndSum("sum", sum.group, sum.kind, result);
  }

  void LookAtSum(uint64_t group, SumKind kind) {
    Begin("look", TargetOf(group, kind));
    phalanx::GetOptions options = Options();
    options.timeout = absl::Milliseconds(Draw(1000));
    EndSum("look", group, kind,
           client_->Get(IdOf(*client_, TargetOf(group, kind)), options).Wait());
  }

  // The arguments of a call follow from its target, so no other client has requested another
  // reduction.
  void EndSum(absl::string_view op, uint64_t group, SumKind kind,
              const absl::StatusOr<phalanx::Buffer>& result) {
    const uint64_t target = TargetOf(group, kind);
    if (absl::IsAlreadyExists(result.status()) && kind != SumKind::kOpen) {
      Print(absl::StrCat("V ", op, " of ", target, ": ", result.status().ToString()));
    }
    std::set<uint64_t> within;
    std::string wrong;
    if (result.ok()) wrong = phalanx::testing::WrongSum(group, kind, result->view(), &within);
    if (!wrong.empty()) Print(absl::StrCat("V the result ", target, " ", wrong));
    if (result.ok() && wrong.empty() && Draw(4) == 0) CheckReducedFrom(group, kind, within);
    End(op, target, 0, result.status());
  }

  // If the target was deleted during the call, it can have another result, with as many sources
  // unless it is open.
  void CheckReducedFrom(uint64_t group, SumKind kind, const std::set<uint64_t>& within) {
    const uint64_t target = TargetOf(group, kind);
    const auto from = client_->ReducedFrom(IdOf(*client_, target), kTimeout).Wait();
    if (!from.ok()) return;
    for (const phalanx::ObjectId& id : *from) {
      uint64_t source = 0;
      while (source < kSources && SourceOf(group, source) != id) ++source;
      if (source == kSources) {
        Print(absl::StrCat("V the result ", target, " lists the source ", id.hex()));
      }
    }
    if (from->size() != within.size() && kind != SumKind::kOpen) {
      Print(absl::StrCat("V the result ", target, " has ", within.size(),
                         " sources in it and lists ", from->size()));
    }
  }

  void ExtendSum(uint64_t group) {
    const uint64_t target = TargetOf(group, SumKind::kOpen);
    const phalanx::ObjectId id = IdOf(*client_, target);
    Begin("extend", target);
    const uint64_t source = phalanx::testing::kOpenSources + Draw(kSources);
    const auto done = source < kSources
                          ? client_->AddSources(id, {SourceOf(group, source)}, kTimeout).Wait()
                          : client_->CloseReduction(id, kTimeout).Wait();
    End("extend", target, 0, done.status());
  }

  void FailSource(uint64_t group, uint64_t source) {
    Begin("fail", MemberOf(group, source));
    const auto done =
        client_->Fail(SourceOf(group, source), absl::AbortedError("its task has failed"), kTimeout)
            .Wait();
    End("fail", MemberOf(group, source), 0, done.status());
  }

  void DropSum(uint64_t member) {
    Begin("drop", member);
    const auto done = client_->Delete(IdOf(*client_, member), kTimeout).Wait();
    End("drop", member, 0, done.status());
  }

  const std::shared_ptr<phalanx::Client> client_;
  const uint64_t writer_;
  const uint64_t writers_;
  std::mt19937_64 random_;
  bool gone_ = false;
  uint64_t attempts_ = 0;
  std::map<uint64_t, Slot> slots_;
  std::deque<Pending> gets_;
  std::deque<Held> held_;
  std::deque<PendingSum> sums_;
  // The first group that this client has not deleted.
  uint64_t oldest_ = GroupNow();
};

int CheckAll(phalanx::Client& client, uint64_t room) {
  uint64_t object = 0;
  uint64_t attempt = 0;
  while (std::cin >> object >> attempt) {
    phalanx::GetOptions options;
    const bool fits = SizeOf(object, attempt) <= room;
    options.timeout = absl::Seconds(fits ? 20 : 2);
    alarm(kStuckSeconds);
    const auto got = client.Get(IdOf(client, object), options).Wait();
    if (!fits && absl::IsResourceExhausted(got.status())) {
      Print(absl::StrCat("S object ", object));
      continue;
    }
    if (!got.ok()) {
      Print(absl::StrCat("V object ", object, " attempt ", attempt,
                         " was adopted and is lost: ", got.status().ToString()));
      continue;
    }
    const uint64_t read = Verify(object, 0, UINT64_MAX, *got).value_or(0);
    if (read != attempt) {
      Print(absl::StrCat("V object ", object, " is attempt ", read, ", not ", attempt));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<absl::string_view> words(argv + 1, argv + argc);
  if (words.size() < 3 || (words[1] != "check" && words.size() < 5)) return 2;
  std::signal(SIGTERM, [](int) { stopping = 1; });
  std::signal(SIGALRM, OnStuck);
  phalanx::ClientOptions options;
  options.address = std::string(words[0]);
  auto client = phalanx::Client::Connect(options);
  if (!client.ok()) {
    Print(absl::StrCat("X ", client.status().ToString()));
    return 3;
  }
  std::vector<uint64_t> numbers(words.size() - 2);
  for (size_t i = 2; i < words.size(); ++i) {
    if (!absl::SimpleAtoi(words[i], &numbers[i - 2])) return 2;
  }
  if (words[1] == "check") return CheckAll(**client, numbers[0]);
  Load load(*std::move(client), numbers[0], numbers[1], numbers[2]);
  return load.Run({numbers.begin() + 3, numbers.end()});
}
