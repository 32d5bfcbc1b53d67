// A rank of a session that benchmarks/run kills, or whose memory it watches: rounds of an allreduce
// of floats, and a checkpoint after some of them.
//
//   session_rank EVENTS BYTES MODEL_BYTES ROUNDS EVERY DETAIL
//
// Makes ROUNDS calls of BYTES, a multiple of 4, with a checkpoint of MODEL_BYTES, at least 8, after
// each EVERY calls, and leaves. Appends lines to the file EVENTS: "up NANOS" at its start, "joined
// NANOS LIFE", "loaded NANOS VERSION", "saved NANOS VERSION"; with DETAIL 1 also "made NANOS CALL"
// and "repeated NANOS CALL" when a call has its result, where CALL counts from 0 in all lives.
// NANOS is of CLOCK_MONOTONIC. The place of the rank in its job is in the environment. Ends with 0;
// with 2 after an error or wrong bytes.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"

namespace {

using phalanx::spmd::Session;

// Sums of so small whole numbers are exact floats.
constexpr uint64_t kPeriod = 1021;

int64_t NowNanos() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

struct Work {
  uint64_t bytes = 0;
  uint64_t model_bytes = 0;
  uint64_t rounds = 0;
  uint64_t every = 0;
  bool detail = false;
};

class Rank {
 public:
  Rank(const Work& work, const std::string& events)
      : work_(work), events_(events, std::ios::app), values_(work.bytes / sizeof(float)) {
    Note("up");
  }

  absl::Status Run() {
    absl::StatusOr<std::shared_ptr<phalanx::Client>> client = phalanx::Client::Connect();
    if (!client.ok()) return client.status();
    absl::StatusOr<Session> session = Session::Join(**client);
    if (!session.ok()) return session.status();
    session_ = &*session;
    Note("joined", session->life());
    model_.assign(work_.model_bytes, '\0');
    const absl::StatusOr<uint64_t> version = session->Load(model_);
    if (!version.ok()) return version.status();
    if (*version > 0 && ModelVersion() != *version) return absl::DataLossError("another model");
    Note("loaded", *version);
    for (uint64_t call = *version * work_.every; call < work_.rounds; ++call) {
      if (absl::Status status = MakeCall(call); !status.ok()) return status;
      if ((call + 1) % work_.every != 0) continue;
      if (absl::Status status = Save(); !status.ok()) return status;
    }
    return session->Leave();
  }

 private:
  absl::Status MakeCall(uint64_t call) {
    const uint64_t repeated = session_->stats().repeated;
    const auto own = static_cast<float>(call % kPeriod + static_cast<uint64_t>(session_->rank()));
    const absl::Status status =
        session_->Allreduce(absl::MakeSpan(values_), phalanx::ReduceOp::kSum,
                            [&] { std::fill(values_.begin(), values_.end(), own); });
    if (!status.ok()) return status;
    if (work_.detail) Note(session_->stats().repeated > repeated ? "repeated" : "made", call);
    const auto world = static_cast<uint64_t>(session_->world());
    const auto sum = static_cast<float>(world * (call % kPeriod) + world * (world - 1) / 2);
    const bool right =
        std::all_of(values_.begin(), values_.end(), [sum](float value) { return value == sum; });
    return right ? absl::OkStatus()
                 : absl::DataLossError(absl::StrCat("the sum of call ", call, " is wrong"));
  }

  absl::Status Save() {
    const uint64_t version = session_->version() + 1;
    std::memcpy(model_.data(), &version, sizeof(version));
    const absl::Status status = session_->Checkpoint(model_);
    if (status.ok()) Note("saved", version);
    return status;
  }

  uint64_t ModelVersion() const {
    uint64_t version = 0;
    if (model_.size() == work_.model_bytes) std::memcpy(&version, model_.data(), sizeof(version));
    return version;
  }

  // One write for each line, so that a kill leaves no part of one.
  void Note(absl::string_view what, uint64_t number = 0) {
    events_ << absl::StrCat(what, " ", NowNanos(), " ", number, "\n") << std::flush;
  }

  const Work work_;
  std::ofstream events_;
  std::vector<float> values_;
  std::string model_;
  Session* session_ = nullptr;
};

bool Parse(int argc, char** argv, Work* work) {
  uint64_t detail = 0;
  const bool parsed = argc == 7 && absl::SimpleAtoi(argv[2], &work->bytes) &&
                      absl::SimpleAtoi(argv[3], &work->model_bytes) &&
                      absl::SimpleAtoi(argv[4], &work->rounds) &&
                      absl::SimpleAtoi(argv[5], &work->every) && absl::SimpleAtoi(argv[6], &detail);
  work->detail = detail > 0;
  return parsed && work->bytes % sizeof(float) == 0 && work->model_bytes >= sizeof(uint64_t) &&
         work->every > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Work work;
  if (!Parse(argc, argv, &work)) {
    std::cerr << "session_rank.cc describes the arguments; benchmarks/run gives them\n";
    return 2;
  }
  const absl::Status status = Rank(work, argv[1]).Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 2;
}
