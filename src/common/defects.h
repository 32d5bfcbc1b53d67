// Named, seeded defects: mistakes that a test switches on to verify that the tests detect them.
//
// Code calls `DefectActive(Defect::kNoGenerationCheck)` at the place of the mistake. Only the
// testonly ScopedDefect (testing/scoped_defect.h) can switch a defect on. In a production process
// each call is one relaxed load that returns false. Any thread.
#ifndef PHALANX_COMMON_DEFECTS_H_
#define PHALANX_COMMON_DEFECTS_H_

#include <atomic>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx {

// One line per defect: X(identifier, "name-on-a-command-line"). Extend at the end of its group.
// The order matters: tests/simulation/defects_test.cc chooses the simulation that must detect a
// defect by the range between the first and the last defect of a group. If a new defect becomes the
// first or the last of its group, change that test, too.
#define PHALANX_DEFECTS(X)                                          \
  /* Bytes of two generations or epochs mix. */                     \
  X(kNoGenerationCheck, "no-generation-check")                      \
  X(kReaderNotVoided, "reader-not-voided")                          \
  X(kResumeOneByteLate, "resume-one-byte-late")                     \
  X(kWrongSliceOffset, "wrong-slice-offset")                        \
  X(kWatermarkBeforeCheck, "watermark-before-check")                \
  X(kCompleteForPartial, "complete-for-partial")                    \
  /* Deleted objects reappear. */                                   \
  X(kLateCompletionAfterDelete, "late-completion-after-delete")     \
  X(kTombstoneForgottenAtRestart, "tombstone-forgotten-at-restart") \
  X(kInlineKeptAfterDelete, "inline-kept-after-delete")             \
  /* Deleted objects are read. */                                   \
  X(kDeleteAcknowledgedEarly, "delete-acknowledged-early")          \
  X(kServedBeyondLease, "served-beyond-lease")                      \
  X(kLeaseEndNotAwaited, "lease-end-not-awaited")                   \
  X(kServedBeforeRegistered, "served-before-registered")            \
  /* Plans: the sender of each receiver. */                         \
  X(kCyclicSender, "cyclic-sender")                                 \
  X(kOldPlanEndsNewPlan, "old-plan-ends-new-plan")                  \
  X(kStallNotDetected, "stall-not-detected")                        \
  X(kStarvedCountedAsStalled, "starved-counted-as-stalled")         \
  X(kCopyListKeepsDeadNode, "copy-list-keeps-dead-node")            \
  X(kWaiterDroppedAtRestart, "waiter-dropped-at-restart")           \
  X(kNameNotRegistered, "name-not-registered")                      \
  X(kMoveBackAndForth, "move-back-and-forth")                       \
  X(kMovedStartsOver, "moved-starts-over")                          \
  /* Adoption: the generation of an object. */                      \
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
  /* Pulls in two trees. */                                         \
  X(kHalfTakenForAll, "half-taken-for-all")                         \
  X(kFailedHalfForgotten, "failed-half-forgotten")                  \
  /* Lifetime: holds and references. */                             \
  X(kHoldAfterAnnouncement, "hold-after-announcement")              \
  X(kHoldsForgottenAtRestart, "holds-forgotten-at-restart")         \
  X(kClaimBeforeHold, "claim-before-hold")                          \
  X(kDeadClientHolds, "dead-client-holds")                          \
  X(kDeadNodeHolds, "dead-node-holds")                              \
  X(kReferencesNotHeld, "references-not-held")                      \
  X(kTtlForgottenAtRestart, "ttl-forgotten-at-restart")             \
  /* Broadcasts: the nodes that get a copy. */                      \
  X(kStickyForgottenAtRestart, "sticky-forgotten-at-restart")       \
  X(kJoinerNotOrdered, "joiner-not-ordered")                        \
  X(kStopNotAnnounced, "stop-not-announced")                        \
  X(kRetryStartsAgain, "retry-starts-again")                        \
  /* Copies on several hosts. */                                    \
  X(kCopiesOnOneHost, "copies-on-one-host")                         \
  X(kCopyNotMadeAgain, "copy-not-made-again")                       \
  X(kCopiesForgottenAtRestart, "copies-forgotten-at-restart")       \
  X(kCopyReleasedTooSoon, "copy-released-too-soon")                 \
  /* Scopes: objects that are freed together. */                    \
  X(kLatePutIntoEndedScope, "late-put-into-ended-scope")            \
  X(kScopeForgottenAtRestart, "scope-forgotten-at-restart")         \
  X(kScopeEndsNextNumber, "scope-ends-next-number")                 \
  X(kScopeAnsweredEarly, "scope-answered-early")                    \
  /* Reductions: assignment and repair of slots. */                 \
  X(kSpareTakenTwice, "spare-taken-twice")                          \
  X(kMetadataNotCompared, "metadata-not-compared")                  \
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
  X(kSwapBackAndForth, "swap-back-and-forth")                       \
  X(kWaitingSenderBlamed, "waiting-sender-blamed")                  \
  X(kSilenceNotForgotten, "silence-not-forgotten")                  \
  /* Reductions: folding, serving and reporting. */                 \
  X(kRootShowsAll, "root-shows-all")                                \
  X(kInputLeftOut, "input-left-out")                                \
  X(kFoldDropIgnored, "fold-drop-ignored")                          \
  X(kAnyVersionServed, "any-version-served")                        \
  X(kReadyTooEarly, "ready-too-early")                              \
  X(kLostFoldForgotten, "lost-fold-forgotten")                      \
  X(kCallerForgottenAtRestart, "caller-forgotten-at-restart")       \
  X(kSourceWatchForgotten, "source-watch-forgotten")                \
  X(kBytesBelowBeginServed, "bytes-below-begin-served")             \
  /* Reductions: rings. */                                          \
  X(kRingCommittedEarly, "ring-committed-early")                    \
  X(kRingHalfDropped, "ring-half-dropped")                          \
  X(kRingPlaceShifted, "ring-place-shifted")                        \
  X(kRingOrderInTree, "ring-order-in-tree")                         \
  X(kRingSlicesFromFirst, "ring-slices-from-first")                 \
  /* Reductions: identity. */                                       \
  X(kEndedReductionForgotten, "ended-reduction-forgotten")          \
  X(kArgumentsForgottenAtRestart, "arguments-forgotten-at-restart") \
  /* Nodes that cannot reach each other. */                         \
  X(kSlowConnectNotReported, "slow-connect-not-reported")           \
  X(kCutNotHeard, "cut-not-heard")                                  \
  X(kCutNeverForgotten, "cut-never-forgotten")                      \
  X(kRelayAcrossCut, "relay-across-cut")                            \
  X(kCutsNotProbed, "cuts-not-probed")                              \
  X(kRelayNotReplaced, "relay-not-replaced")                        \
  X(kRelayLeftBehind, "relay-left-behind")                          \
  X(kCutHoldsUpGets, "cut-holds-up-gets")                           \
  X(kPullRelayNotReplaced, "pull-relay-not-replaced")               \
  X(kPullRelayLeftBehind, "pull-relay-left-behind")                 \
  X(kRingAcrossCut, "ring-across-cut")                              \
  /* Jobs: their members. */                                        \
  X(kOldLifeEndsNewLife, "old-life-ends-new-life")                  \
  X(kRankGivenTwice, "rank-given-twice")                            \
  X(kLifeReusedAfterRestart, "life-reused-after-restart")           \
  X(kDeathNotTold, "death-not-told")                                \
  X(kFencedMemberRevived, "fenced-member-revived")                  \
  X(kReplacedLifeContinues, "replaced-life-continues")              \
  X(kMemberForgottenAtRestart, "member-forgotten-at-restart")       \
  /* Groups: collectives of the members of a job. */                \
  X(kGroupListsMixed, "group-lists-mixed")                          \
  X(kGroupResultNotAdopted, "group-result-not-adopted")             \
  X(kGroupResultFreedEarly, "group-result-freed-early")             \
  X(kGroupLostMemberCounted, "group-lost-member-counted")           \
  X(kGroupOlderLifeUsed, "group-older-life-used")                   \
  X(kGroupBaseOneLate, "group-base-one-late")                       \
  X(kGroupErrorNotTold, "group-error-not-told")                     \
  X(kGroupMismatchIgnored, "group-mismatch-ignored")                \
  X(kGroupEndedTakesNoPart, "group-ended-takes-no-part")            \
  X(kGroupReadyNotAwaited, "group-ready-not-awaited")               \
  X(kGroupInputNotAwaited, "group-input-not-awaited")               \
  X(kGroupPartNotFinal, "group-part-not-final")                     \
  X(kGroupPartNotVoid, "group-part-not-void")                       \
  X(kGroupAnsweredBeyondLease, "group-answered-beyond-lease")       \
  X(kGroupVouchedEarly, "group-vouched-early")                      \
  X(kGroupOneVouchEnough, "group-one-vouch-enough")                 \
  X(kGroupLeftEarly, "group-left-early")                            \
  X(kGroupLeaveNotAskedAgain, "group-leave-not-asked-again")        \
  /* Groups: results that are kept. */                              \
  X(kResultsOnOneHost, "results-on-one-host")                       \
  X(kResultDroppedEarly, "result-dropped-early")                    \
  X(kResultRefusedEarly, "result-refused-early")                    \
  X(kResultsNotKeptAnew, "results-not-kept-anew")                   \
  X(kResultsReleasedByBroadcast, "results-released-by-broadcast")   \
  X(kResultsReleasedWhenCalled, "results-released-when-called")     \
  X(kBootResultsReleased, "boot-results-released")                  \
  X(kGroupOlderKeepTaken, "group-older-keep-taken")                 \
  X(kResultPieceMisplaced, "result-piece-misplaced")                \
  /* Links between nodes, and messages between members. */          \
  X(kLinkResumesAtWritten, "link-resumes-at-written")               \
  X(kLinkCountsLate, "link-counts-late")                            \
  X(kLinkSessionNotCompared, "link-session-not-compared")           \
  X(kMessageTwice, "message-twice")                                 \
  X(kMessageToOlderLife, "message-to-older-life")                   \
  X(kMessageCreditLost, "message-credit-lost")                      \
  /* Sessions: programs that go on from their checkpoints. */       \
  X(kSessionRepeatsOneLess, "session-repeats-one-less")             \
  X(kSessionLoadsOlder, "session-loads-older")                      \
  X(kSessionFreesAtCheckpoint, "session-frees-at-checkpoint")       \
  X(kSessionFreesAfterOneCall, "session-frees-after-one-call")      \
  X(kSessionBroadcastFrees, "session-broadcast-frees")              \
  X(kSessionReleasesItsVersion, "session-releases-its-version")     \
  X(kSessionRunsShareNames, "session-runs-share-names")             \
  X(kSessionLazySavedLate, "session-lazy-saved-late")               \
  X(kSessionLazyDeathForgotten, "session-lazy-death-forgotten")     \
  X(kSessionLazyTwice, "session-lazy-twice")                        \
  X(kSessionLoadsUnended, "session-loads-unended")                  \
  X(kSessionKeepsOldReleased, "session-keeps-old-released")         \
  X(kSessionLocalsMixed, "session-locals-mixed")                    \
  X(kSessionLocalFreedEarly, "session-local-freed-early")           \
  X(kSessionLocalOfAnother, "session-local-of-another")             \
  X(kSessionLocalNotCopied, "session-local-not-copied")             \
  /* Sessions: files from which a job goes on. */                   \
  X(kDiskRunsNotCompared, "disk-runs-not-compared")                 \
  X(kDiskRunNotRenewed, "disk-run-not-renewed")                     \
  X(kDiskFilesRemovedEarly, "disk-files-removed-early")             \
  X(kDiskEndNotMarked, "disk-end-not-marked")                       \
  /* The parameter server. */                                       \
  X(kPsPushSeenEarly, "ps-push-seen-early")                         \
  X(kPsArrivalOrder, "ps-arrival-order")                            \
  X(kPsPushCountedTwice, "ps-push-counted-twice")                   \
  X(kPsSnapshotCountedEarly, "ps-snapshot-counted-early")           \
  X(kPsClockBeforePushes, "ps-clock-before-pushes")                 \
  X(kPsMinimumPlusOne, "ps-minimum-plus-one")                       \
  X(kPsParkedPullLost, "ps-parked-pull-lost")                       \
  X(kPsOldLifeHeard, "ps-old-life-heard")                           \
  X(kPsFreedWhenDone, "ps-freed-when-done")                         \
  X(kPsPositionsNotSaved, "ps-positions-not-saved")                 \
  X(kPsPullsNotSentAgain, "ps-pulls-not-sent-again")                \
  X(kPsNextLifeSkips, "ps-next-life-skips")                         \
  X(kPsGapNotNoticed, "ps-gap-not-noticed")                         \
  X(kPsWelcomedEarly, "ps-welcomed-early")                          \
  X(kPsNextLifeRepeats, "ps-next-life-repeats")                     \
  X(kPsVersionFreedEarly, "ps-version-freed-early")                 \
  X(kPsLostPushSaved, "ps-lost-push-saved")                         \
  X(kPsTurnNotAwaited, "ps-turn-not-awaited")                       \
  X(kPsHandleNotReplaced, "ps-handle-not-replaced")                 \
  X(kPsHeldPullEarly, "ps-held-pull-early")                         \
  X(kPsAnswersMixed, "ps-answers-mixed")                            \
  X(kPsAheadNotVoided, "ps-ahead-not-voided")

enum class Defect {
  kNone,
#define PHALANX_DEFECT_ENUM_(identifier, name) identifier,
  PHALANX_DEFECTS(PHALANX_DEFECT_ENUM_)
#undef PHALANX_DEFECT_ENUM_
};

namespace testing {
class ScopedDefect;
}  // namespace testing

// The defect that is on, or kNone. At most one defect is on at a time.
class DefectSwitch {
 public:
  static bool Active(Defect defect) { return active_.load(std::memory_order_relaxed) == defect; }

 private:
  friend class testing::ScopedDefect;
  static std::atomic<Defect> active_;
};

// True if a test has switched `defect` on. REQUIRES: `defect` is not kNone.
inline bool DefectActive(Defect defect) { return DefectSwitch::Active(defect); }

// Returns a name like "no-generation-check", or "none" for kNone.
absl::string_view DefectName(Defect defect);
std::optional<Defect> DefectFromName(absl::string_view name);
// Every defect but kNone, in the order of the list.
const std::vector<Defect>& AllDefects();

}  // namespace phalanx

#endif  // PHALANX_COMMON_DEFECTS_H_
