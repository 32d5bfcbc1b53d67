// The ranks of a job sum a vector in each of five rounds. Each keeps the total as its model.
//
//   phalanx launch -n 3 --restarts 2 --fail 1@4 -- basic
//
// The death of rank 1 in its fourth call changes nothing of what is printed last.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "phalanx/client.h"
#include "phalanx/spmd.h"

namespace {

constexpr uint64_t kRounds = 5;

absl::Status Run() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  auto session = phalanx::spmd::Session::Join(**client);
  if (!session.ok()) return session.status();

  std::string total = "";  // a model: a string is one, too
  const absl::StatusOr<uint64_t> version = session->Load(total);
  if (!version.ok()) return version.status();
  if (session->life() > 0) {
    std::cout << "life " << session->life() << " goes on from version " << *version << std::endl;
  }
  while (session->version() < kRounds) {
    std::vector<int64_t> sum(3);
    absl::Status status = session->Allreduce(absl::MakeSpan(sum), phalanx::ReduceOp::kSum, [&] {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = session->rank() + static_cast<int64_t>(i + session->version());
      }
    });
    if (!status.ok()) return status;
    total += " " + std::to_string(sum[0] + sum[1] + sum[2]);
    status = session->Checkpoint(total);
    if (!status.ok()) return status;
  }
  std::cout << "rank " << session->rank() << ":" << total << std::endl;
  return session->Leave();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
