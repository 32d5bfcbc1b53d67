// Reduces the results of tasks before all of them exist: the element-wise maximum of any three of
// four.
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"

namespace {

// Task t's result: three floats.
absl::string_view Bytes(const std::vector<float>& values) {
  return absl::string_view(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
}

}  // namespace

int main() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  std::vector<phalanx::ObjectId> results;
  for (int task = 0; task < 4; ++task) {
    results.push_back((*client)->Id(absl::StrCat("task-", task)));
  }
  // Called before any result exists. If another client makes the same call, it joins.
  const phalanx::ObjectId best = (*client)->Id("best");
  phalanx::ReduceOptions options;
  options.op = phalanx::ReduceOp::kMax;
  options.num_objects = 3;
  options.timeout = absl::Seconds(30);
  const auto reduced = (*client)->AllReduce(best, results, options);

  // Tasks finish in some order; one of them never does.
  for (const int task : {2, 0, 3}) {
    const float t = static_cast<float>(task);
    const auto id = results[static_cast<size_t>(task)];
    if (!(*client)->Put(id, Bytes({t, 10 - t, 5})).Wait().ok()) return 1;
  }

  const auto result = reduced.Wait();
  const auto from = (*client)->ReducedFrom(best).Wait();
  if (!result.ok() || !from.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  std::vector<float> values(result->size() / sizeof(float));
  std::memcpy(values.data(), result->data(), result->size());
  std::printf("%g %g %g, of %zu results\n", values[0], values[1], values[2], from->size());
  return 0;
}
