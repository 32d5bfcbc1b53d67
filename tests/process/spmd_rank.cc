// A rank of a session, for tests that kill it: a few iterations with calls of every kind, and a
// checkpoint after each.
//
//   spmd_rank ITERATIONS COUNT KIND [POINT@VERSION:RANK:LIFE ...]
//
// Checkpoints of KIND: `eager`, `lazy` or `local`, with a local model; `fold` is eager, with an
// AllreduceBy as well. The vector of an Allreduce has COUNT floats, of 1e8, 1 and -1e8, whose sums
// depend on their order. Kills itself with SIGKILL at each given point: `load` and `loaded` (within
// Load, and after it), `save` and `saved` (within Checkpoint, and after it), `prepare` (within
// Allreduce), `input` and `fold` (within AllreduceBy). Prints "start PID LIFE", "load VERSION",
// "prepare VERSION" for each input of an Allreduce, "saved VERSION", and "end HASH REPEATED", of
// the model; at the launch "rank RANK has HASH". Ends with 0; 2 and "ERROR ..." if a call fails.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"

namespace {

using phalanx::ReduceOp;
using phalanx::spmd::Session;

constexpr float kValues[] = {1e8f, 1, -1e8f};

int Fail(const absl::Status& status) {
  std::cout << "ERROR " << status << std::endl;
  return 2;
}

class Rank {
 public:
  Rank(size_t count, std::string kind, std::vector<std::string> deaths)
      : weights_(count), local_(count, 'l'), kind_(std::move(kind)), deaths_(std::move(deaths)) {}

  absl::Status Run(uint64_t iterations) {
    absl::StatusOr<std::shared_ptr<phalanx::Client>> client = phalanx::Client::Connect();
    if (!client.ok()) return client.status();
    phalanx::spmd::Options options;
    options.peer_timeout = absl::Seconds(60);
    absl::StatusOr<Session> session = Session::Join(**client, options);
    if (!session.ok()) return session.status();
    session_ = &*session;
    std::cout << "start " << getpid() << " " << session->life() << std::endl;
    std::string boot = session->rank() == 0 ? "boot" : "";
    absl::Status status = session->Broadcast(&boot, 0);
    if (status.ok() && kind_ == "local") status = session->Load(*this, local_).status();
    if (status.ok() && kind_ != "local") status = session->Load(*this).status();
    if (!status.ok()) return status;
    DieAt("loaded");
    std::cout << "load " << session->version() << std::endl;
    hash_ = boot.size();
    while (session->version() < iterations) {
      status = Iterate();
      if (status.ok()) status = Checkpoint();
      if (!status.ok()) return status;
      DieAt("saved");
      std::cout << "saved " << session->version() << std::endl;
    }
    Add(Save());
    std::cout << "end " << hash_ << " " << session->stats().repeated << std::endl;
    status = session->Print(absl::StrCat("rank ", session->rank(), " has ", hash_));
    return status.ok() ? session->Leave() : status;
  }

  // The model: the weights, which all ranks have.
  std::string Save() const {
    DieAt("save");
    return std::string(reinterpret_cast<const char*>(weights_.data()),
                       weights_.size() * sizeof(float));
  }
  absl::Status Load(absl::string_view bytes) {
    DieAt("load");
    if (bytes.size() != weights_.size() * sizeof(float)) return absl::DataLossError("another size");
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(weights_.data()));
    return absl::OkStatus();
  }

 private:
  void DieAt(absl::string_view point) const {
    const std::string here =
        absl::StrCat(point, "@", session_->version(), ":", session_->rank(), ":", session_->life());
    if (std::find(deaths_.begin(), deaths_.end(), here) != deaths_.end()) raise(SIGKILL);
  }

  absl::Status Checkpoint() {
    if (kind_ == "lazy") return session_->LazyCheckpoint(*this);
    if (kind_ == "local") return session_->Checkpoint(*this, local_);
    return session_->Checkpoint(*this);
  }

  absl::Status Iterate() {
    const auto version = static_cast<size_t>(session_->version());
    const auto rank = static_cast<size_t>(session_->rank());
    std::vector<float> sum(weights_.size());
    absl::Status status = session_->Allreduce(absl::MakeSpan(sum), ReduceOp::kSum, [&] {
      std::cout << "prepare " << version << std::endl;
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = kValues[(i + rank + version) % 3] + weights_[i] + static_cast<float>(local_[i]);
      }
      DieAt("prepare");
    });
    if (!status.ok()) return status;
    // The roots take turns.
    std::vector<float> scale;
    const int root = static_cast<int>(version) % session_->world();
    if (session_->rank() == root) scale.assign(3, 0.5f);
    status = session_->Broadcast(&scale, root);
    if (!status.ok()) return status;
    const std::vector<float> mine(rank, static_cast<float>(version));
    absl::StatusOr<std::vector<float>> all = session_->Allgather(absl::MakeConstSpan(mine));
    if (!all.ok()) return all.status();
    status = session_->Barrier();
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = weights_[i] * scale[i % 3] + sum[i] + (*all)[i % all->size()];
    }
    if (status.ok() && kind_ == "fold") status = Fold();
    if (kind_ != "local") return status;
    for (char& each : local_) each = static_cast<char>(each * 5 + static_cast<char>(rank));
    return status;
  }

  // Not associative, so the result depends on where folds are made.
  absl::Status Fold() {
    std::vector<float> folded(weights_.size());
    const auto fold = [this](void* into, const void* from, uint64_t count) {
      DieAt("fold");
      for (uint64_t i = 0; i < count; ++i) {
        float& sum = static_cast<float*>(into)[i];
        sum = sum * 0.5f + static_cast<const float*>(from)[i];
      }
    };
    const absl::Status status = session_->AllreduceBy(
        folded.data(), folded.size() * sizeof(float), sizeof(float), fold, [&] {
          DieAt("input");
          for (size_t i = 0; i < folded.size(); ++i) {
            folded[i] = weights_[i] + kValues[(i + static_cast<size_t>(session_->rank())) % 3];
          }
        });
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] -= folded[i];
    return status;
  }

  void Add(const std::string& bytes) {
    for (const char byte : bytes) hash_ = hash_ * 31 + static_cast<unsigned char>(byte);
  }

  std::vector<float> weights_;
  std::string local_;  // model of this rank alone
  const std::string kind_;
  const std::vector<std::string> deaths_;
  Session* session_ = nullptr;
  uint64_t hash_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  uint64_t iterations = 0;
  uint64_t count = 0;
  if (argc < 4 || !absl::SimpleAtoi(argv[1], &iterations) || !absl::SimpleAtoi(argv[2], &count)) {
    std::cerr << "usage: spmd_rank ITERATIONS COUNT KIND [POINT@VERSION:RANK:LIFE ...]\n";
    return 2;
  }
  Rank rank(count, argv[3], std::vector<std::string>(argv + 4, argv + argc));
  const absl::Status status = rank.Run(iterations);
  return status.ok() ? 0 : Fail(status);
}
