#include "src/client/spmd/boot_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::spmd::internal {
namespace {

constexpr uint64_t kMagic = 0x7068616c616e7821;
constexpr uint64_t kUnnamed = 0;
constexpr uint64_t kLoad = 1;
// Of a mark.
constexpr uint64_t kNamedBit = uint64_t{1} << 63;
constexpr uint64_t kRecordBit = uint64_t{1} << 62;

// The same in all processes. Not of the two above.
uint64_t HashOf(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  hash = (hash ^ (hash >> 31)) * 0x94d049bb133111eb;
  return (hash ^ (hash >> 29)) % (kRecordBit - 2) + 2;
}

NameRecord RecordOf(uint64_t name) { return {kMagic, name, ~name}; }

}  // namespace

BootCalls::BootCalls(uint64_t ended, uint64_t boot, bool named)
    : ended_(ended), boot_(boot), named_(named), made_(ended) {}

uint64_t BootCalls::last_record() const {
  if (!named_ || ended_ < 2) return 0;
  return boot_ > 0 ? boot_ : ended_;
}

bool BootCalls::IsRecord(const NameRecord& record) {
  return record[0] == kMagic && record[2] == ~record[1];
}

void BootCalls::AddRecord(uint64_t number, const NameRecord& record) {
  records_.push_back({number, record[1]});
}

absl::StatusOr<std::optional<NameRecord>> BootCalls::Begin(absl::string_view name) {
  if (name.empty()) return BeginAs(kUnnamed, name);
  const uint64_t hash = HashOf(name);
  if (names_.contains(hash)) {
    return absl::InvalidArgumentError(absl::StrCat("the name \"", name, "\" is used twice"));
  }
  return BeginAs(hash, name);
}

absl::StatusOr<std::optional<NameRecord>> BootCalls::BeginLoad() {
  // Not named by this life, or an earlier one.
  if (!named_) return std::nullopt;
  return BeginAs(kLoad, "Load");
}

absl::StatusOr<std::optional<NameRecord>> BootCalls::BeginAs(uint64_t name,
                                                             absl::string_view text) {
  const bool plain = name == kUnnamed && plain_ < first_record() && (plain_ <= ended_ || !named_);
  const size_t found = Find(name);
  if (!plain && found == records_.size() && passed_load()) {
    return absl::InvalidArgumentError(
        name == kUnnamed ? "the lives before have made fewer unnamed calls before Load"
                         : absl::StrCat("no life has made \"", text, "\" before its Load"));
  }
  name_ = name;
  is_plain_ = plain;
  makes_record_ = false;
  record_ = found;
  if (plain) {
    next_ = plain_;
    end_ = first_record();
    return std::nullopt;
  }
  named_ = true;
  if (found < records_.size()) {
    next_ = records_[found].number + 1;
    end_ = found + 1 < records_.size() ? records_[found + 1].number : kNone;
    return std::nullopt;
  }
  makes_record_ = true;
  next_ = made_ + 1;
  end_ = kNone;
  return RecordOf(name);
}

size_t BootCalls::Find(uint64_t name) const {
  size_t at = name == kUnnamed ? unnamed_ : 0;
  while (at < records_.size() && records_[at].name != name) ++at;
  return at;
}

bool BootCalls::passed_load() const {
  return boot_ > 0 || (!records_.empty() && records_.back().name == kLoad);
}

absl::Status BootCalls::CheckNext() const {
  // A call that has not ended follows the last one that has.
  if (next_ < end_ && (next_ <= ended_ || next_ == made_ + 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the call takes more calls of the group than in the life before");
}

void BootCalls::OnMade() {
  made_ = std::max(made_, next_);
  if (name_ != kUnnamed) names_.insert(name_);
  if (makes_record_) {
    makes_record_ = false;
    record_ = records_.size();
    records_.push_back({next_, name_});
  }
  if (is_plain_) {
    plain_ = next_ + 1;
  } else if (name_ == kUnnamed) {
    unnamed_ = record_ + 1;
  }
  ++next_;
}

uint64_t BootCalls::mark() const {
  if (!named_ || is_plain_) return 0;
  return kNamedBit | (makes_record_ ? kRecordBit : 0) | name_;
}

}  // namespace phalanx::spmd::internal
