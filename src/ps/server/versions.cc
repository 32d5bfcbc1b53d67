#include "src/ps/server/versions.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::ps::internal {

// Numbers are not used again in a life of the server, and the prefix is that of the life: an object
// never changes.
std::string Versions::HandleOf(uint64_t number) const { return absl::StrCat(prefix_, number); }

// Mostly that which workers have pulled last. It is published once, whatever it is needed for.
std::string Versions::Base() {
  if (newest_ == 0) {
    newest_ = ++last_;
    replaced_ = false;
    versions_.emplace(newest_, Version());
  }
  return HandleOf(newest_);
}

std::string Versions::Answer(const Reader& reader) {
  Base();
  return Add(reader, newest_);
}

// Readers of the one before keep it until they have read it.
void Versions::ReplaceBase() {
  replaced_ = replaced_ || newest_ > 0;
  FreeIfUnused(std::exchange(newest_, 0));
}

// The owner makes the object, so it is not to be taken as one to publish.
std::string Versions::BeginAhead(uint64_t attempt) {
  const uint64_t number = ++last_;
  versions_.emplace(number, Version{.pending = false, .copy = std::nullopt, .ahead = true});
  ahead_[attempt] = number;
  return HandleOf(number);
}

// Of several attempts the newest one: those before it may wait for a push that is lost.
std::string Versions::AnswerAhead(const Reader& reader) {
  PHALANX_CHECK(!ahead_.empty(), "an attempt makes a version");
  return Add(reader, ahead_.rbegin()->second);
}

// It counts as the newest one when the rows have changed.
void Versions::AheadMade(uint64_t attempt) {
  made_ = ahead_.at(attempt);
  ahead_.erase(attempt);
  versions_.at(made_).ahead = false;
}

// A worker that was answered asks again, and says that it is lost, which is nothing then.
void Versions::EndAhead(uint64_t attempt) {
  const auto found = ahead_.find(attempt);
  if (found == ahead_.end()) return;
  const uint64_t number = found->second;
  ahead_.erase(found);
  const bool awaited = versions_.at(number).readers > 0;
  if (awaited && !DefectActive(Defect::kPsAheadNotVoided)) voids_.push_back(HandleOf(number));
  ForgetReadersOf(number);
  versions_.erase(number);
}

void Versions::EndAhead() {
  while (!ahead_.empty()) EndAhead(ahead_.begin()->first);
}

std::string Versions::AnswerPrevious(const Reader& reader) {
  PHALANX_CHECK(previous_ > 0, "there is a previous version");
  return Add(reader, previous_);
}

// A question that is answered twice is read once.
std::string Versions::Add(const Reader& reader, uint64_t number) {
  ++versions_.at(number).readers;
  OnRead(reader);
  readers_.emplace(reader, number);
  ++unread_[reader.worker];
  return HandleOf(number);
}

// The previous one is what a next life can ask for, so one that was lost is made again, while its
// rows are there.
void Versions::OnChange(absl::string_view rows, uint64_t clock) {
  if (keeps_previous_ && replaced_) Base();
  replaced_ = false;
  for (auto& [number, version] : versions_) {
    if (version.pending && !version.copy.has_value()) version.copy = std::string(rows);
  }
  const uint64_t newest = std::exchange(newest_, std::exchange(made_, 0));
  const uint64_t before = previous_;
  if (keeps_previous_) {
    previous_ = newest;
    previous_until_ = clock;
    FreeIfUnused(before);
  }
  FreeIfUnused(newest);
}

void Versions::OnRead(const Reader& reader, bool lost) {
  const auto found = readers_.find(reader);
  if (found == readers_.end()) return;
  const uint64_t number = found->second;
  readers_.erase(found);
  if (lost) versions_.at(number).lost = true;
  if (lost && newest_ == number) {
    newest_ = 0;
    replaced_ = true;
  }
  if (lost && previous_ == number) previous_ = 0;
  --unread_[reader.worker];
  Release(number);
}

void Versions::Forget(int worker) {
  const auto end = readers_.lower_bound(Reader{.worker = worker + 1});
  for (auto at = readers_.lower_bound(Reader{.worker = worker}); at != end;) {
    const uint64_t number = at->second;
    at = readers_.erase(at);
    --unread_[worker];
    Release(number);
  }
}

void Versions::Release(uint64_t number) {
  --versions_.at(number).readers;
  FreeIfUnused(number);
}

void Versions::FreeIfUnused(uint64_t number) {
  if (number == 0 || number == newest_ || number == previous_) return;
  const auto found = versions_.find(number);
  if (found == versions_.end()) return;
  if (found->second.ahead) return;
  if (found->second.readers > 0 && !DefectActive(Defect::kPsVersionFreedEarly)) return;
  // No object was made of one that has not been taken.
  if (!found->second.pending) unpublishes_.push_back(HandleOf(number));
  if (found->second.readers == 0) versions_.erase(found);
}

void Versions::ForgetReadersOf(uint64_t number) {
  std::erase_if(readers_, [&](const auto& entry) {
    if (entry.second != number) return false;
    --unread_[entry.first.worker];
    return true;
  });
}

std::vector<Versions::Reader> Versions::OnPublishFailed(absl::string_view handle) {
  std::vector<Reader> readers;
  uint64_t number = 0;
  for (const auto& [one, version] : versions_) {
    if (HandleOf(one) == handle) number = one;
  }
  if (number == 0) return readers;
  for (const auto& [reader, of] : readers_) {
    if (of == number) readers.push_back(reader);
  }
  ForgetReadersOf(number);
  versions_.erase(number);
  // The next pull makes another one.
  if (newest_ == number) newest_ = 0;
  if (previous_ == number) previous_ = 0;
  return readers;
}

void Versions::Clear() {
  newest_ = previous_ = 0;
  replaced_ = false;
  EndAhead();
  for (const auto& [number, version] : versions_) {
    if (!version.pending) unpublishes_.push_back(HandleOf(number));
  }
  versions_.clear();
  readers_.clear();
  unread_.assign(unread_.size(), 0);
}

std::vector<Versions::Publish> Versions::TakePublishes() {
  std::vector<Publish> publishes;
  for (auto& [number, version] : versions_) {
    if (!std::exchange(version.pending, false)) continue;
    publishes.push_back({HandleOf(number), std::exchange(version.copy, std::nullopt)});
  }
  return publishes;
}

std::vector<std::string> Versions::TakeUnpublishes() { return std::exchange(unpublishes_, {}); }

}  // namespace phalanx::ps::internal
