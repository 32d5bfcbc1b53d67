// The root's strings and vectors go to all ranks, of any size: receivers need not know it.
//
//   phalanx launch -n 3 --restarts 1 --fail 0@3 -- broadcast
//
// All ranks get the number of the process that is the first life of the root: calls before Load are
// repeated in every life.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"

namespace {

// Each rank is the root of one round.
absl::Status SendNumbers(phalanx::spmd::Session& session, int root) {
  std::vector<double> numbers;
  if (session.rank() == root) {
    for (int i = 0; i < 1000 * (root + 1); ++i) numbers.push_back(0.5 * i + root);
  }
  const absl::Status status = session.Broadcast(&numbers, root);
  if (!status.ok()) return status;
  const bool right =
      numbers.size() == static_cast<size_t>(1000 * (root + 1)) && numbers[999] == 0.5 * 999 + root;
  return right ? absl::OkStatus() : absl::DataLossError("other numbers");
}

absl::Status Run() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  auto session = phalanx::spmd::Session::Join(**client);
  if (!session.ok()) return session.status();

  std::string run;
  if (session->rank() == 0) run = absl::StrCat("process ", getpid());
  absl::Status status = session->Broadcast(&run, 0);
  if (!status.ok()) return status;
  std::string no_model = "";
  status = session->Load(no_model).status();
  if (!status.ok()) return status;
  const absl::StatusOr<std::vector<char>> all = session->Allgather(absl::MakeConstSpan(run));
  if (!all.ok()) return all.status();
  for (size_t at = 0; at < all->size(); at += run.size()) {
    if (!std::equal(run.begin(), run.end(), all->begin() + static_cast<ptrdiff_t>(at))) {
      return absl::DataLossError("the ranks have different numbers");
    }
  }
  for (int root = 0; root < session->world(); ++root) {
    status = SendNumbers(*session, root);
    if (!status.ok()) return status;
  }
  std::cout << absl::StrCat("rank ", session->rank(), " has received ", session->world(),
                            " broadcasts")
            << std::endl;
  return session->Leave();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
