// Takes the first few results of many tasks, whichever they are, and leaves the stragglers.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"

int main() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  std::vector<phalanx::ObjectId> results;
  for (int task = 0; task < 8; ++task) {
    results.push_back((*client)->Id(absl::StrCat("result-", task)));
  }
  // None of them is put yet: each Get blocks until its object is created, up to its deadline.
  phalanx::GetOptions options;
  options.timeout = absl::Seconds(30);
  const auto first = (*client)->GetFirst(results, 3, options);

  // Tasks finish in some order; five of them never do.
  for (const int task : {6, 1, 4}) {
    const auto id = results[static_cast<size_t>(task)];
    if (!(*client)->Put(id, absl::StrCat("of task ", task)).Wait().ok()) return 1;
  }

  const auto arrivals = first.Wait();
  if (!arrivals.ok()) {
    std::fprintf(stderr, "%s\n", arrivals.status().ToString().c_str());
    return 1;
  }
  for (const auto& arrival : *arrivals) {
    std::printf("%zu: %s\n", arrival.index, std::string(arrival.buffer.view()).c_str());
  }
  return arrivals->size() == 3 ? 0 : 1;
}
