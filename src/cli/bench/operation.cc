#include "src/cli/bench/operation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/cli/bench/operation_base.h"

namespace phalanx::runtime::bench {
namespace {

// Operations in which several ranks take part.
const std::vector<std::string> kTogether = {
    "broadcast",           "broadcast_all",        "gather",
    "allgather",           "all_to_all",           "reduce",
    "allreduce",           "reduce_scatter",       "roundtrip",
    "group_allreduce",     "group_reduce",         "group_broadcast",
    "group_allgather",     "group_reduce_scatter", "group_all_to_all",
    "group_barrier",       "job_allreduce",        "job_checkpoint",
    "job_lazy_checkpoint", "job_local_checkpoint", "job_local_counted"};
const std::vector<std::string> kAlone = {"put",       "put_turns", "get", "put_get",
                                         "directory", "puts",      "gets"};

}  // namespace

std::vector<std::string> OperationNames() {
  std::vector<std::string> names = kTogether;
  names.insert(names.end(), kAlone.begin(), kAlone.end());
  return names;
}

absl::StatusOr<std::unique_ptr<Operation>> MakeOperation(const BenchOptions& options,
                                                         std::shared_ptr<Client> client) {
  // A single rank would wait for a partner until its deadline.
  const bool needs_two = std::count(kTogether.begin(), kTogether.end(), options.op) > 0;
  if (needs_two && options.world < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.op, " needs --world of 2 or more, not ", options.world));
  }
  // Each family returns null for an op that it does not know.
  std::unique_ptr<Operation> operation = MakeMovingOperation(options, client);
  if (operation == nullptr) operation = MakeLocalOperation(options, client);
  if (operation == nullptr) operation = MakeReducingOperation(options, client);
  if (operation == nullptr) operation = MakeGroupOperation(options, client);
  if (operation == nullptr) operation = MakeSessionOperation(options, client);
  if (operation != nullptr) return operation;
  return absl::InvalidArgumentError(absl::StrCat("unknown operation '", options.op,
                                                 "'; the operations are ",
                                                 absl::StrJoin(OperationNames(), ", ")));
}

}  // namespace phalanx::runtime::bench
