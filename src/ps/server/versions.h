// Versions: the states of a part that are objects of the store, so that all workers that pull the
// whole part in one state share one object.
//
//   a pull          the next pulls       the rows change           they change again
//     │                   │                    │                         │
//   published, newest ────┴──────────── kBsp: the previous one ── kept while an answer is unread
//   ──► freed
//                                       else: kept while an answer is unread ─────────────────────►
//                                       freed
//
// With kBsp the previous one stays, because a worker's next life can pull it again: it makes the
// clock of a push again that was lost with its host, and this server may have turned that clock.
//
// A version is the rows themselves until the owner takes it, or until they change: then a copy.
//
// A turn can be a reduction whose result is the next version, made by the store (rows/ring_sums.h):
// the rows as they are are one of its sources, and pulls are answered before it is there.
//
// Pure. Belongs to a ServerTable. One thread at a time.
#ifndef PHALANX_PS_SERVER_VERSIONS_H_
#define PHALANX_PS_SERVER_VERSIONS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::ps::internal {

class Versions {
 public:
  // An answer that is read.
  struct Reader {
    int worker = 0;
    uint64_t ticket = 0;
    uint32_t piece = 0;
    friend auto operator<=>(const Reader&, const Reader&) = default;
  };
  // What is to be an object.
  struct Publish {
    std::string handle;
    // Empty: the rows as they are now.
    std::optional<std::string> copy;
  };

  // Handles are `prefix`, which has the table's number, and the number of the version.
  // `keeps_previous`: with kBsp.
  Versions(std::string prefix, bool keeps_previous, int workers)
      : prefix_(std::move(prefix)), keeps_previous_(keeps_previous), unread_(workers) {}

  // The handle of the newest version, for this answer. It is made if the rows have changed since
  // the last one.
  std::string Answer(const Reader& reader);
  // There is one of before the last change, which was by the turn of this clock or a later one.
  bool has_previous(uint64_t clock) const { return previous_ > 0 && clock <= previous_until_; }
  // REQUIRES: has_previous.
  std::string AnswerPrevious(const Reader& reader);
  // The rows, which are these, are about to change. With kBsp by the turn of `clock`.
  void OnChange(absl::string_view rows, uint64_t clock);

  // ---- the version that a turn makes
  // The handle of the rows as they are now, as an object. It stays at least until they change, but
  // for Replace.
  std::string Base();
  // The owner has not got it, or cannot use it: the next Base is another one.
  void ReplaceBase();
  // The handle of what this attempt at the turn is to make. It need not be published.
  std::string BeginAhead(uint64_t attempt);
  // REQUIRES: BeginAhead since the last EndAhead.
  std::string AnswerAhead(const Reader& reader);
  // The attempt has made it: the rows that change next become this version. REQUIRES: ahead.
  void AheadMade(uint64_t attempt);
  // The attempt, if there is one, makes no version any more. Answers with it are not awaited: that
  // object is never there (TakeVoids), and its readers ask again. What was made stays.
  void EndAhead(uint64_t attempt);
  // Of all attempts.
  void EndAhead();
  // Such an attempt is under way, and no reader has found what it has made lost.
  bool ahead(uint64_t attempt) const {
    const auto found = ahead_.find(attempt);
    return found != ahead_.end() && !versions_.at(found->second).lost;
  }

  // `lost`: the reader has found no object of this name, so the next answer is another version.
  void OnRead(const Reader& reader, bool lost = false);
  // What the worker has not read is not awaited any more.
  void Forget(int worker);
  // Answers of the worker that are not read.
  uint32_t unread(int worker) const { return unread_[worker]; }
  // It could not be published. Returns its answers, which are not awaited any more.
  std::vector<Reader> OnPublishFailed(absl::string_view handle);
  // No version is needed any more.
  void Clear();

  // Since the last call. A version that was freed before it was taken is in neither.
  std::vector<Publish> TakePublishes();
  std::vector<std::string> TakeUnpublishes();
  // What was answered with, and is never there.
  std::vector<std::string> TakeVoids() { return std::exchange(voids_, {}); }

 private:
  struct Version {
    uint32_t readers = 0;
    bool pending = true;              // it has not been taken
    std::optional<std::string> copy;  // while it is pending
    bool ahead = false;               // it is not there yet
    bool lost = false;                // it was there, for a reader
  };

  std::string HandleOf(uint64_t number) const;
  std::string Add(const Reader& reader, uint64_t number);
  void Release(uint64_t number);
  void FreeIfUnused(uint64_t number);
  void ForgetReadersOf(uint64_t number);

  const std::string prefix_;
  const bool keeps_previous_;
  uint64_t last_ = 0;  // number
  uint64_t newest_ = 0;
  uint64_t previous_ = 0;  // these two are 0 if there is none
  uint64_t previous_until_ = 0;
  bool replaced_ = false;                 // the newest one was lost, and none has come in its place
  std::map<uint64_t, uint64_t> ahead_;    // by attempt
  uint64_t made_ = 0;                     // by the turn that is being made; 0: none
  std::map<uint64_t, Version> versions_;  // by number
  std::map<Reader, uint64_t> readers_;
  std::vector<uint32_t> unread_;  // by worker
  std::vector<std::string> unpublishes_;
  std::vector<std::string> voids_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_VERSIONS_H_
