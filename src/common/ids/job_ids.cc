#include "src/common/ids/job_ids.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/common/ids/object_name.h"
#include "src/common/ids/shard_of.h"

namespace phalanx {
namespace {

// Other objects have other namespaces, so a job does not share the shard of an object by its name.
constexpr absl::string_view kNameSpace = "phalanx.job";
static_assert(kMaxJobNameBytes <= kMaxObjectNameBytes);

}  // namespace

absl::Status CheckJobName(absl::string_view what, absl::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat("a ", what, " needs a name"));
  if (name.size() > kMaxJobNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the name of a ", what, " has at most ",
                                                   kMaxJobNameBytes, " bytes, not ", name.size()));
  }
  if (ObjectName::Of("", name).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the name of the ", what, " \"",
                                                   absl::CHexEscape(name),
                                                   "\" is not UTF-8 without control characters"));
  }
  return absl::OkStatus();
}

int ShardOfJob(absl::string_view job, int num_shards) {
  return ShardOf(ObjectId::FromName(kNameSpace, job), num_shards);
}

int RankInName(absl::string_view role, absl::string_view task) {
  if (!absl::StartsWith(task, role)) return -1;
  const absl::string_view number = task.substr(role.size());
  int rank = -1;
  // SimpleAtoi accepts signs and blanks, too.
  if (number.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(number[0])) ||
      (number[0] == '0' && number.size() > 1) || !absl::SimpleAtoi(number, &rank) ||
      absl::StrCat(rank) != number) {
    return -1;
  }
  return rank < kMaxWorld ? rank : -1;
}

}  // namespace phalanx
