// An input that takes long is computed only if a call needs it: not if its result is kept.
//
//   phalanx launch -n 3 --restarts 1 --fail 1@4 -- lazy_allreduce
//
// The next life of rank 1 repeats two calls without their inputs, and makes the third one, in which
// it died.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"

namespace {

constexpr int kCalls = 3;

absl::Status Run() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  auto session = phalanx::spmd::Session::Join(**client);
  if (!session.ok()) return session.status();
  std::string no_model = "";
  absl::Status status = session->Load(no_model).status();
  if (!status.ok()) return status;

  std::vector<int> prepared;
  std::vector<int64_t> sum(4);
  int64_t power = 1;
  for (int call = 0; call < kCalls; ++call, power *= 10) {
    status = session->Allreduce(absl::MakeSpan(sum), phalanx::ReduceOp::kSum, [&] {
      prepared.push_back(call);
      sum.assign(4, session->rank() * power);
    });
    if (!status.ok()) return status;
  }
  std::cout << absl::StrCat("rank ", session->rank(), ", life ", session->life(),
                            ": prepared calls [", absl::StrJoin(prepared, ", "),
                            "], the last sum is ", sum[0])
            << std::endl;
  return session->Leave();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
