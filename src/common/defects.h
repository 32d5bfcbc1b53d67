// Named, seeded defects: mistakes that a test can switch on to see whether the tests notice them.
//
// Code asks `DefectActive(Defect::kNoGenerationCheck)` at the place where the mistake would be.
// Only the testonly ScopedDefect (testing/scoped_defect.h) can switch one on, so that in a
// production process every question is one relaxed load that is false. Any thread.
#ifndef PHALANX_COMMON_DEFECTS_H_
#define PHALANX_COMMON_DEFECTS_H_

#include <atomic>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx {

// One line per defect: X(identifier, "name-on-a-command-line"). Extend at the end of its group.
#define PHALANX_DEFECTS(X)                                          \
  /* Bytes of two generations or epochs mix. */                     \
  X(kNoGenerationCheck, "no-generation-check")                      \
  X(kReaderNotVoided, "reader-not-voided")                          \
  X(kResumeOneByteLate, "resume-one-byte-late")                     \
  X(kWrongSliceOffset, "wrong-slice-offset")                        \
  X(kWatermarkBeforeCheck, "watermark-before-check")                \
  X(kCompleteForPartial, "complete-for-partial")                    \
  /* Deleted objects come back. */                                  \
  X(kLateCompletionAfterDelete, "late-completion-after-delete")     \
  X(kTombstoneForgottenAtRestart, "tombstone-forgotten-at-restart") \
  X(kInlineKeptAfterDelete, "inline-kept-after-delete")             \
  /* Plans: who pulls from whom. */                                 \
  X(kCyclicSender, "cyclic-sender")                                 \
  X(kOldPlanEndsNewPlan, "old-plan-ends-new-plan")                  \
  X(kStallNotDetected, "stall-not-detected")                        \
  X(kStarvedCountedAsStalled, "starved-counted-as-stalled")         \
  X(kCopyListKeepsDeadNode, "copy-list-keeps-dead-node")            \
  X(kWaiterDroppedAtRestart, "waiter-dropped-at-restart")           \
  /* Adoption: which generation counts. */                          \
  X(kAckBeforeAdoption, "ack-before-adoption")                      \
  X(kStandbyAdoptedEarly, "standby-adopted-early")                  \
  X(kProvisionalBeatsAdopted, "provisional-beats-adopted")          \
  X(kFencedDropsSoleCopy, "fenced-drops-sole-copy")                 \
  /* Sessions. */                                                   \
  X(kSequenceNotDeduplicated, "sequence-not-deduplicated")          \
  X(kMessageLostOnResume, "message-lost-on-resume")                 \
  X(kPinDroppedOnReconnect, "pin-dropped-on-reconnect")             \
  /* Memory. */                                                     \
  X(kEvictLastCopy, "evict-last-copy")                              \
  X(kMemoryKeptAfterFailedPull, "memory-kept-after-failed-pull")    \
  X(kEvictWithoutAsking, "evict-without-asking")                    \
  X(kParkedForEver, "parked-for-ever")                              \
  /* Lifetime: who holds what. */                                   \
  X(kHoldAfterAnnouncement, "hold-after-announcement")              \
  X(kHoldsForgottenAtRestart, "holds-forgotten-at-restart")         \
  X(kClaimBeforeHold, "claim-before-hold")                          \
  X(kDeadClientHolds, "dead-client-holds")                          \
  X(kDeadNodeHolds, "dead-node-holds")                              \
  X(kReferencesNotHeld, "references-not-held")                      \
  /* Broadcasts: who is to have a copy. */                          \
  X(kStickyForgottenAtRestart, "sticky-forgotten-at-restart")       \
  X(kJoinerNotOrdered, "joiner-not-ordered")                        \
  X(kStopNotTold, "stop-not-told")                                  \
  X(kAskedAgainAnew, "asked-again-anew")                            \
  /* Reductions: who takes which slot, and what is mended. */       \
  X(kSpareTakenTwice, "spare-taken-twice")                          \
  X(kAncestorsNotLowered, "ancestors-not-lowered")                  \
  X(kOldVersionCommitted, "old-version-committed")                  \
  X(kSlotAcrossNodes, "slot-across-nodes")                          \
  X(kRestoredSlotGivenAway, "restored-slot-given-away")             \
  X(kMovedFoldKeepsSender, "moved-fold-keeps-sender")               \
  X(kDeadRootKept, "dead-root-kept")                                \
  X(kSeatMiscountedAfterLoss, "seat-miscounted-after-loss")         \
  X(kFoldLeftBehind, "fold-left-behind")                            \
  X(kLostResultForgotten, "lost-result-forgotten")                  \
  X(kNewAttemptNotNoticed, "new-attempt-not-noticed")               \
  /* Reductions: what nodes fold, serve and say. */                 \
  X(kRootShowsAll, "root-shows-all")                                \
  X(kInputLeftOut, "input-left-out")                                \
  X(kFoldDropIgnored, "fold-drop-ignored")                          \
  X(kAnyVersionServed, "any-version-served")                        \
  X(kReadyTooEarly, "ready-too-early")                              \
  X(kLostFoldForgotten, "lost-fold-forgotten")                      \
  X(kCallerForgottenAtRestart, "caller-forgotten-at-restart")       \
  X(kSourceWatchForgotten, "source-watch-forgotten")                \
  /* Reductions: rings. */                                          \
  X(kRingCommittedEarly, "ring-committed-early")                    \
  X(kRingHalfDropped, "ring-half-dropped")                          \
  /* Reductions: which one is meant. */                             \
  X(kEndedReductionForgotten, "ended-reduction-forgotten")          \
  X(kArgumentsForgottenAtRestart, "arguments-forgotten-at-restart")

enum class Defect {
  kNone,
#define PHALANX_DEFECT_ENUM_(identifier, name) identifier,
  PHALANX_DEFECTS(PHALANX_DEFECT_ENUM_)
#undef PHALANX_DEFECT_ENUM_
};

namespace testing {
class ScopedDefect;
}  // namespace testing

// Holds which defect is on; at most one is.
class DefectSwitch {
 public:
  static bool Active(Defect defect) { return active_.load(std::memory_order_relaxed) == defect; }

 private:
  friend class testing::ScopedDefect;
  static std::atomic<Defect> active_;
};

// False for every defect but the one that a test switched on. REQUIRES: not kNone.
inline bool DefectActive(Defect defect) { return DefectSwitch::Active(defect); }

// "no-generation-check"; "none" for kNone.
absl::string_view DefectName(Defect defect);
std::optional<Defect> DefectFromName(absl::string_view name);
// Every defect but kNone, in the order of the list.
const std::vector<Defect>& AllDefects();

}  // namespace phalanx

#endif  // PHALANX_COMMON_DEFECTS_H_
