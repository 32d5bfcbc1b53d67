// One call for tests of reductions under faults. Checks every element.
//
//   reduce_caller ADDRESS put SOURCE ATTEMPT BYTES DTYPE ID
//   reduce_caller ADDRESS reduce|join|fixed|allreduce TARGET COUNT BYTES DTYPE SECONDS ID...
//   reduce_caller - shard ID SHARDS
//
// Source s is the s-th of the IDs. The bytes of attempt a at it follow from (s, a), so every
// element of a sum shows its attempts: all elements must show the same ones, one attempt for each
// source that the result reports, COUNT in all. `reduce` has the root on this node, `join` on any
// node; `fixed` folds in the order of the list. Prints one line: "OK SOURCE:ATTEMPT ...", "ERROR
// CODE text", "LOST CODE text" (the reduction succeeded, but its result cannot be read), or "WRONG
// text".
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"

namespace {

using phalanx::DType;
using phalanx::ObjectId;

// For 8 sources: 53 bits in all, which an f64 represents exactly.
constexpr int kAttemptBits = 5;
constexpr int kMaxSources = 8;
constexpr int kPatternShift = kAttemptBits * kMaxSources;
constexpr uint64_t kPeriod = 31;

uint64_t Element(uint64_t source, uint64_t attempt, uint64_t place) {
  const uint64_t pattern = (place * 7 + source + attempt * 13) % kPeriod;
  return (attempt << (kAttemptBits * source)) + (pattern << kPatternShift);
}

void Store(DType dtype, uint64_t value, char* into) {
  const double as_float = static_cast<double>(value);
  std::memcpy(into, dtype == DType::kF64 ? static_cast<const void*>(&as_float) : &value, 8);
}

uint64_t Load(DType dtype, const char* from) {
  uint64_t value = 0;
  double as_float = 0;
  std::memcpy(&value, from, 8);
  std::memcpy(&as_float, from, 8);
  return dtype == DType::kF64 ? static_cast<uint64_t>(as_float) : value;
}

// Returns the period of the sum of these attempts, one of each source or 0.
std::string PeriodOf(DType dtype, const std::vector<uint64_t>& attempts) {
  std::string period(kPeriod * 8, '\0');
  for (uint64_t place = 0; place < kPeriod; ++place) {
    uint64_t sum = 0;
    for (size_t source = 0; source < attempts.size(); ++source) {
      if (attempts[source] != 0) sum += Element(source, attempts[source], place);
    }
    Store(dtype, sum, period.data() + place * 8);
  }
  return period;
}

std::string BytesOf(DType dtype, const std::vector<uint64_t>& attempts, uint64_t size) {
  const std::string period = PeriodOf(dtype, attempts);
  std::string bytes;
  bytes.reserve(size + period.size());
  while (bytes.size() < size) bytes += period;
  bytes.resize(size);
  return bytes;
}

int Print(absl::string_view line) {
  std::cout << line << std::endl;
  return 0;
}

int PrintError(absl::string_view word, const absl::Status& status) {
  return Print(
      absl::StrCat(word, " ", absl::StatusCodeToString(status.code()), " ", status.message()));
}

struct Sum {
  ObjectId target;
  std::vector<ObjectId> sources;
  size_t count = 0;
  uint64_t bytes = 0;
  phalanx::ReduceOptions options;
};

// Returns the attempts that the first element shows.
std::vector<uint64_t> AttemptsIn(const Sum& sum, absl::string_view bytes) {
  const uint64_t first = Load(sum.options.dtype, bytes.data());
  std::vector<uint64_t> attempts;
  for (size_t source = 0; source < sum.sources.size(); ++source) {
    attempts.push_back(first >> (kAttemptBits * source) & ((1 << kAttemptBits) - 1));
  }
  return attempts;
}

int Check(const Sum& sum, absl::string_view bytes, const std::vector<ObjectId>& from) {
  if (bytes.size() != sum.bytes) {
    return Print(absl::StrCat("WRONG it has ", bytes.size(), " bytes"));
  }
  const std::vector<uint64_t> attempts = AttemptsIn(sum, bytes);
  std::string line = "OK";
  std::set<ObjectId> within;
  for (size_t source = 0; source < attempts.size(); ++source) {
    if (attempts[source] == 0) continue;
    absl::StrAppend(&line, " ", source, ":", attempts[source]);
    within.insert(sum.sources[source]);
  }
  if (within.size() != sum.count || from.size() != sum.count ||
      within != std::set<ObjectId>(from.begin(), from.end())) {
    return Print(absl::StrCat("WRONG it has ", line, " in it, and lists ", from.size(),
                              " sources of ", sum.count));
  }
  const std::string period = PeriodOf(sum.options.dtype, attempts);
  for (size_t at = 0; at < bytes.size(); at += period.size()) {
    if (!absl::StartsWith(period, bytes.substr(at, period.size()))) {
      return Print(absl::StrCat("WRONG ", line, " in its first bytes, others near byte ", at));
    }
  }
  return Print(line);
}

int ReduceAndCheck(phalanx::Client& client, absl::string_view verb, Sum sum) {
  absl::StatusOr<phalanx::Buffer> result;
  if (verb == "allreduce") {
    result = client.AllReduce(sum.target, sum.sources, sum.options).Wait();
    if (!result.ok()) return PrintError("ERROR", result.status());
  } else {
    using Root = phalanx::ReduceOptions::Root;
    sum.options.root = verb == "join" ? Root::kAny : Root::kCaller;
    if (verb == "fixed") sum.options.order = phalanx::ReduceOptions::Order::kFixed;
    const auto done = client.Reduce(sum.target, sum.sources, sum.options).Wait();
    if (!done.ok()) return PrintError("ERROR", done.status());
    phalanx::GetOptions get;
    get.timeout = sum.options.timeout;
    result = client.Get(sum.target, get).Wait();
    if (!result.ok()) return PrintError("LOST", result.status());
  }
  const auto from = client.ReducedFrom(sum.target, sum.options.timeout).Wait();
  if (!from.ok()) return PrintError("LOST", from.status());
  return Check(sum, result->view(), *from);
}

int Put(phalanx::Client& client, const ObjectId& id, DType dtype, uint64_t source, uint64_t attempt,
        uint64_t bytes) {
  std::vector<uint64_t> attempts(source + 1, 0);
  attempts[source] = attempt;
  phalanx::PutOptions options;
  options.wait_for_adoption = true;
  options.timeout = absl::Seconds(30);
  const auto put = client.Put(id, BytesOf(dtype, attempts, bytes), options).Wait();
  if (!put.ok()) return PrintError("ERROR", put.status());
  return Print(absl::StrCat("OK ", put->already_existed ? "existed" : "new"));
}

std::vector<ObjectId> Ids(const std::vector<absl::string_view>& words, size_t first) {
  std::vector<ObjectId> ids;
  for (size_t i = first; i < words.size(); ++i) ids.push_back(ObjectId::FromHex(words[i]).value());
  return ids;
}

uint64_t Number(absl::string_view text) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) std::exit(2);
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<absl::string_view> words(argv + 1, argv + argc);
  if (words.size() < 4) return 2;
  if (words[1] == "shard") {
    const ObjectId id = ObjectId::FromHex(words[2]).value();
    return Print(absl::StrCat(id.ShardHash() % Number(words[3])));
  }
  phalanx::ClientOptions options;
  options.address = std::string(words[0]);
  auto client = phalanx::Client::Connect(options);
  if (!client.ok()) return PrintError("ERROR", client.status());
  if (words[1] == "put" && words.size() == 7) {
    return Put(**client, Ids(words, 6)[0], phalanx::ParseDType(words[5]).value(), Number(words[2]),
               Number(words[3]), Number(words[4]));
  }
  if (words.size() < 8 || words.size() > 7 + kMaxSources) return 2;
  Sum sum;
  sum.target = ObjectId::FromHex(words[2]).value();
  sum.count = Number(words[3]);
  sum.bytes = Number(words[4]);
  sum.options.dtype = phalanx::ParseDType(words[5]).value();
  sum.options.timeout = absl::Seconds(static_cast<int64_t>(Number(words[6])));
  sum.sources = Ids(words, 7);
  sum.options.num_objects = sum.count;
  return ReduceAndCheck(**client, words[1], std::move(sum));
}
