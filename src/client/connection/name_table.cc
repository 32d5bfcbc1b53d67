#include "src/client/connection/name_table.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace phalanx::internal {
namespace {

constexpr size_t kHexDigits = 2 * ObjectId::kSize;

// Returns how many hexadecimal digits `text` begins with.
size_t LeadingDigits(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isxdigit(static_cast<unsigned char>(text[digits]))) {
    ++digits;
  }
  return digits;
}

}  // namespace

ObjectId NameTable::Derive(absl::string_view name_space, absl::string_view name) {
  const ObjectId id = ObjectId::FromName(name_space, name);
  const MutexLock lock(mu_);
  if (names_.contains(id)) return id;
  ObjectName kept = ObjectName::Of(name_space, name);
  if (kept.empty()) return id;
  if (names_.size() == kMaxNames) {
    names_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  names_.emplace(id, Entry{std::move(kept), oldest_first_.insert(oldest_first_.end(), id)});
  any_.store(true, std::memory_order_release);
  return id;
}

void NameTable::Forget(const ObjectId& id) {
  const MutexLock lock(mu_);
  const auto found = names_.find(id);
  if (found == names_.end()) return;
  oldest_first_.erase(found->second.place);
  names_.erase(found);
}

size_t NameTable::size() const {
  const MutexLock lock(mu_);
  return names_.size();
}

ObjectName NameTable::Find(const ObjectId& id) const {
  if (empty()) return {};
  const MutexLock lock(mu_);
  const auto found = names_.find(id);
  return found == names_.end() ? ObjectName() : found->second.name;
}

absl::Status NameTable::WithNames(const absl::Status& status) const {
  if (status.ok() || empty()) return status;
  absl::string_view rest(status.message().data(), status.message().size());
  std::string text;
  while (!rest.empty()) {
    const size_t digits = LeadingDigits(rest);
    // A longer row of digits is no id.
    const ObjectName name =
        digits == kHexDigits ? Find(*ObjectId::FromHex(rest.substr(0, kHexDigits))) : ObjectName();
    const size_t taken = digits == 0 ? 1 : digits;
    const absl::string_view part = rest.substr(0, taken);
    const std::string shown = absl::StrCat("\"", name.ToString(), "\" (");
    // The error of a call can be the error of a call that it has made.
    if (name.empty() || absl::EndsWith(text, shown)) {
      absl::StrAppend(&text, part);
    } else {
      absl::StrAppend(&text, shown, part, ")");
    }
    rest.remove_prefix(taken);
  }
  return absl::Status(status.code(), text);
}

}  // namespace phalanx::internal
