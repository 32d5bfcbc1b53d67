// How the inputs of folds arrive: which nodes of a running tree turn out to be slow, or have
// stopped, so that the plan can do without their sources or keep them out of the way.
//
//   FoldReport.pace ──► a low rate, or none ──► Placed::troubles ──► judged, at once or in a moment
//                  └──► enough ──► the trouble is over                        │
//                       the plan hears again of the node's sources ◄── Reduction::slow_nodes
//
// A low rate is the link's if the fold below has computed much more than has arrived. It is taken
// to last until the node reports that it has risen, and proves nothing while a source of the two
// folds is still being written or received. Of the two ends the receiver is the slow one then, if
// the sender itself receives so much more. A leaf receives nothing: it is suspected. It is
// acquitted if its receiver has a slow link with another node, too, and known to be slow for later
// transfers if its receiver does well with another.
//
// A silence counts as a rate: it is expected to last as long again as it has lasted. So the longer
// it lasts, and the less is done, the sooner the plan gives the node up: when waiting has cost as
// much as starting over. A sender that the shard has heard from since, that has not delivered yet,
// or whose source is still being written, is not given up.
//
// Each report costs work for the one input. That a node is slow, or is not, costs a look at each
// source of the reduction.
//
// Owned by ReductionManager; writes Reduction::slow_nodes and Placed::troubles. Thread rule: the
// shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_FOLD_PACES_H_
#define PHALANX_DIRECTORY_REDUCTIONS_FOLD_PACES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_parts.h"
#include "src/directory/reductions/source_watcher.h"

namespace phalanx::directory {

class FoldPaces {
 public:
  FoldPaces(const ReductionParts& parts, ReductionCatalog& catalog, SourceWatcher& watcher);

  // Returns InvalidArgument if the sender is no node; nothing is changed then. A report of an input
  // that has moved since is ignored, as are all after the commit. REQUIRES: the fold is placed at
  // the node.
  absl::Status OnPace(Reduction& reduction, const Node& node, Reduction::Placed& placed,
                      const SlotVersion& version, const v1::InputPace& m);
  // Judges the troubles of the fold's inputs that are due. Returns when to look again.
  Instant OnTimer(Reduction& reduction, const Reduction::FoldKey& key);

 private:
  using Trouble = Reduction::Trouble;
  // A fold, and the one below it that an input comes from.
  struct Link {
    const Node& sender;
    const Node& receiver;
    const FoldTask& below;
    const FoldTask& above;
  };
  // Nothing if the input is not that of another node's placed fold.
  std::optional<Link> LinkOf(const Reduction& reduction, const NodeKey& receiver,
                             const SlotVersion& version, size_t input) const;

  void NoteSilence(const Link& link, Reduction::Placed& placed, const v1::InputPace& m);
  // What a rate says of the link.
  enum class Pace : uint8_t {
    kLow,
    kNoProof,  // neither end need be the limit, or others share the link with the input
    kFine,
  };
  Pace NoteRate(const Link& link, Reduction::Placed& placed, const v1::InputPace& m);
  // Bytes come again. `fine`: so many that the input's two nodes do well.
  void EndTrouble(Reduction& reduction, const Link& link, Reduction::Placed& placed, size_t input,
                  bool fine);

  // The link has this rate: nodes that had a much slower link with one of its ends are slow
  // themselves.
  void ConvictSuspects(Reduction& reduction, const Link& link, double rate);

  // Which end of a slow link is taken for slow.
  struct Verdict {
    bool sender = false;     // and not the receiver
    bool certain = false;    // not only suspected
    NodeKey acquitted = {};  // was suspected in place of that end; not valid if none was
  };

  // Take one end of the link for slow, set judge_at, or leave it: for good then.
  void JudgeSilence(Reduction& reduction, const Link& link, Trouble& trouble);
  void JudgeRate(Reduction& reduction, const Link& link, Trouble& trouble);
  // Returns true if the fold below has computed much more than has arrived.
  bool IsAhead(const Reduction& reduction, const Link& link, const Trouble& trouble) const;
  Verdict SlowEnd(const Reduction& reduction, const Link& link) const;
  // The tasks of the link are not valid afterwards.
  void Blame(Reduction& reduction, const Link& link, const Verdict& verdict, const Trouble& trouble,
             double speed);
  // The node is not slow after all.
  void Acquit(Reduction& reduction, const NodeKey& node);

  // Returns true if the node has all bytes of the sources that its fold takes from the node itself.
  bool HoldsOwn(const Reduction& reduction, const FoldTask& task, const NodeKey& node);
  bool HoldsWhole(const Reduction& reduction, const ObjectId& source, const NodeKey& node);
  // How many transfers can share the link with the input.
  double Sharing(const Link& link) const;
  double FastRate() const { return links_.FastRate().value_or(links_.ExpectedRate()); }
  bool SeenFast(const Node& node) const;
  // The plan hears of the node's sources again: also of those that wait.
  void ReportSources(Reduction& reduction, const NodeKey& node);

  CoreContext& context_;
  NodeTable& nodes_;
  LinkModel& links_;
  ReductionCatalog& catalog_;
  SourceWatcher& watcher_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_FOLD_PACES_H_
