#include "src/directory/reductions/fold_paces.h"

#include <algorithm>
#include <cstdint>

#include "src/common/defects.h"
#include "src/common/pace_rules.h"
#include "src/common/status_macros.h"
#include "src/directory/core/reduce_messages.h"

namespace phalanx::directory {
namespace {

// Bytes arrive in bursts: a report can lack what the link carries in this time.
constexpr absl::Duration kBurst = absl::Milliseconds(12);
// What the link model learns is to last, and pulls of objects can share the link unnoticed: it may
// have so many times the rate.
constexpr double kUncounted = 2;
// While no link is known to be fast, the others may be as slow as this one. To find out costs a
// start from the beginning, so that the rest must take at least this long.
constexpr absl::Duration kWorthTrying = absl::Seconds(1);
// A low rate is judged again after this time, and after twice as long each time, up to the last.
constexpr absl::Duration kFirstLook = absl::Milliseconds(20);
constexpr absl::Duration kLastLook = absl::Seconds(1);
// For so long a rate can have risen unheard: a look of the node, and the report's way. Longer only
// until kPaceRiseWindow has passed since the last report.
constexpr absl::Duration kRiseUnheard = absl::Milliseconds(25);
// Of more reductions than these, the rest is taken to share a link.
constexpr size_t kReductionsExamined = 64;
// A report from a node can name any time.
constexpr uint64_t kLongestSilenceNs = uint64_t{1} << 42;
// Beyond the moment at which waiting and starting over cost the same.
constexpr absl::Duration kDueMargin = absl::Milliseconds(1);

bool Pulled(const FoldInput& input, const NodeKey& node) {
  return input.kind == FoldInput::Kind::kSlot && input.node != node;
}

bool Receives(const FoldTask& task, const NodeKey& node) {
  return std::any_of(task.inputs.begin(), task.inputs.end(),
                     [&node](const FoldInput& input) { return Pulled(input, node); });
}

bool FoldsAt(const Reduction& reduction, const NodeKey& node) {
  const auto first = reduction.placed.lower_bound({node, SlotVersion()});
  return first != reduction.placed.end() && first->first.first == node;
}

std::vector<ObjectId> OwnSources(const FoldTask& task) {
  std::vector<ObjectId> own;
  for (const FoldInput& input : task.inputs) {
    if (input.kind == FoldInput::Kind::kSource) own.push_back(input.source);
  }
  return own;
}

}  // namespace

FoldPaces::FoldPaces(const ReductionParts& parts, ReductionCatalog& catalog, SourceWatcher& watcher)
    : context_(parts.context),
      nodes_(parts.nodes),
      links_(parts.links),
      catalog_(catalog),
      watcher_(watcher) {}

std::optional<FoldPaces::Link> FoldPaces::LinkOf(const Reduction& reduction,
                                                 const NodeKey& receiver,
                                                 const SlotVersion& version, size_t input) const {
  const FoldTask* above = reduction.plan.Find(receiver, version);
  if (above == nullptr || input >= above->inputs.size()) return std::nullopt;
  const FoldInput& from = above->inputs[input];
  const FoldTask* below = reduction.plan.Find(from.node, from.version);
  const Node* sender = nodes_.Find(from.node);
  const Node* here = nodes_.Find(receiver);
  if (!Pulled(from, receiver) || below == nullptr || sender == nullptr || here == nullptr) {
    return std::nullopt;
  }
  return Link{*sender, *here, *below, *above};
}

absl::Status FoldPaces::OnPace(Reduction& reduction, const Node& node, Reduction::Placed& placed,
                               const SlotVersion& version, const v1::InputPace& m) {
  PHALANX_ASSIGN_OR_RETURN(const NodeKey from, ParseNodeKey(m.sender()));
  // After the commit nothing is changed for the sake of time.
  if (reduction.committed()) return absl::OkStatus();
  const std::optional<Link> link = LinkOf(reduction, node.key, version, m.input());
  // The input has moved since, or a third node hands it on.
  if (!link.has_value() || link->sender.key != from) return absl::OkStatus();
  if (m.bytes_per_second() > 0) {
    links_.NoteUsed(link->sender.endpoint, link->receiver.endpoint, context_.now);
  }
  if (m.silent_ns() > 0) {
    NoteSilence(*link, placed, m);
  } else {
    if (m.window_ns() > 0) ConvictSuspects(reduction, *link, UsableRate(m.bytes_per_second()));
    // Without a window something that was reported is over. That does not say how fast bytes come.
    const Pace pace = m.window_ns() > 0 ? NoteRate(*link, placed, m) : Pace::kNoProof;
    if (pace != Pace::kLow) {
      EndTrouble(reduction, *link, placed, m.input(), pace == Pace::kFine);
      return absl::OkStatus();
    }
  }
  const Reduction::FoldKey key{node.key, version};
  reduction.LookAt(key, placed, OnTimer(reduction, key));
  catalog_.SetTimer(reduction, placed.look);
  return absl::OkStatus();
}

void FoldPaces::NoteSilence(const Link& link, Reduction::Placed& placed, const v1::InputPace& m) {
  const double rate = UsableRate(m.bytes_per_second());
  // No byte has come since the pull began: the sender may wait for memory. The report has shown
  // that this node runs.
  if (rate <= 0) return;
  const auto at = placed.troubles.find(m.input());
  const bool again =
      at != placed.troubles.end() && at->second.silent && at->second.sender == link.sender.key;
  const auto silent = static_cast<int64_t>(std::min(m.silent_ns(), kLongestSilenceNs));
  // The first report can arrive before that of the sender, which waits as well.
  placed.troubles[m.input()] = {.since = context_.now - absl::Nanoseconds(silent),
                                .watermark = std::min(m.watermark(), link.above.size_bytes),
                                .bytes_per_second = rate,
                                .silent = true,
                                .sender = link.sender.key,
                                .judge_at = again ? context_.now : Instant::Infinite()};
}

FoldPaces::Pace FoldPaces::NoteRate(const Link& link, Reduction::Placed& placed,
                                    const v1::InputPace& m) {
  const double rate = UsableRate(m.bytes_per_second());
  const Endpoint& from = link.sender.endpoint;
  const Endpoint& to = link.receiver.endpoint;
  const auto window = static_cast<double>(m.window_ns());
  const double part = std::max(0.0, 1 - absl::ToDoubleNanoseconds(kBurst) / window);
  const double enough = part * LinkModel::kSlowShare * FastRate();
  const bool low = rate * Sharing(link) < enough;
  const bool starved = m.starved_ns() >= m.window_ns() / 10;
  if (low || starved) {
    links_.RecordLeast(from, to, rate, context_.now);
  } else {
    links_.RecordBounds(from, to, rate, kUncounted * Sharing(link) * rate, context_.now);
  }
  // That it would be enough if nothing shared the link is no proof: perhaps nothing does.
  if (!low) return rate >= enough ? Pace::kFine : Pace::kNoProof;
  // Between racks and zones neither node need be the limit.
  if (rate <= 0 || Crosses(from.locality, to.locality)) return Pace::kNoProof;
  const uint64_t watermark = std::min(m.watermark(), link.above.size_bytes);
  const double left = static_cast<double>(link.above.size_bytes - watermark) / rate;
  if (!links_.FastRate().has_value() && absl::Seconds(left) < kWorthTrying) {
    return Pace::kNoProof;
  }
  placed.troubles[m.input()] = {.since = context_.now,
                                .watermark = watermark,
                                .bytes_per_second = rate,
                                .silent = false,
                                .sender = link.sender.key,
                                .judge_at = context_.now};
  return Pace::kLow;
}

void FoldPaces::EndTrouble(Reduction& reduction, const Link& link, Reduction::Placed& placed,
                           size_t input, bool fine) {
  if (DefectActive(Defect::kSilenceNotForgotten)) return;
  placed.troubles.erase(input);
  std::vector<NodeKey> acquitted;
  for (const NodeKey& end : {link.sender.key, link.receiver.key}) {
    const auto slow = reduction.slow_nodes.find(end);
    if (slow == reduction.slow_nodes.end() || !(fine || slow->second.silent)) continue;
    acquitted.push_back(end);
    reduction.slow_nodes.erase(slow);
  }
  if (acquitted.empty()) return;
  // Held, so that the plan decides when it knows of all sources of both.
  reduction.plan.Hold();
  for (const NodeKey& node : acquitted) ReportSources(reduction, node);
  reduction.plan.Release();
}

void FoldPaces::ConvictSuspects(Reduction& reduction, const Link& link, double rate) {
  for (auto& [suspect, slow] : reduction.slow_nodes) {
    const NodeKey peer = slow.with;
    const bool ends = suspect == link.sender.key || suspect == link.receiver.key;
    if (slow.silent || ends || (peer != link.sender.key && peer != link.receiver.key)) continue;
    const Node* node = nodes_.Find(suspect);
    if (node == nullptr || rate * LinkModel::kSlowShare < slow.speed * FastRate()) continue;
    links_.NoteSlow(node->endpoint, slow.speed * FastRate(), context_.now);
    slow.with = NodeKey();
  }
}

Instant FoldPaces::OnTimer(Reduction& reduction, const Reduction::FoldKey& key) {
  const auto found = reduction.placed.find(key);
  if (found == reduction.placed.end() || reduction.committed()) return Instant::Infinite();
  Instant next = Instant::Infinite();
  for (auto& [input, trouble] : found->second.troubles) {
    if (trouble.judge_at <= context_.now) {
      // Set first: what is judged for good is not judged again.
      trouble.judge_at = Instant::Infinite();
      const std::optional<Link> link = LinkOf(reduction, key.first, key.second, input);
      // The input has moved to another node since.
      if (!link.has_value() || link->sender.key != trouble.sender) continue;
      trouble.silent ? JudgeSilence(reduction, *link, trouble)
                     : JudgeRate(reduction, *link, trouble);
    }
    next = std::min(next, trouble.judge_at);
  }
  return next;
}

// The plan starts over if (left + waited) / size, at the usual rate, is more than kMuchSooner: that
// it will wait as long again as it has is what `waited` says.
void FoldPaces::JudgeSilence(Reduction& reduction, const Link& link, Trouble& trouble) {
  // It runs: it waits for bytes itself and says so, or only the link is broken.
  const bool runs = link.sender.last_heard > trouble.since;
  if (runs && !DefectActive(Defect::kWaitingSenderBlamed)) return;
  const auto size = static_cast<double>(link.above.size_bytes);
  const double left = size - static_cast<double>(trouble.watermark);
  const double bytes = ReducePlan::kMuchSooner * size - left;
  const Instant due = trouble.since + absl::Seconds(bytes / trouble.bytes_per_second) + kDueMargin;
  if (due > context_.now) {
    trouble.judge_at = due;
    return;
  }
  if (!HoldsOwn(reduction, link.below, link.sender.key)) return;
  const double waited =
      trouble.bytes_per_second * absl::ToDoubleSeconds(context_.now - trouble.since);
  Blame(reduction, link, {.sender = true}, trouble, left / (left + waited));
}

void FoldPaces::JudgeRate(Reduction& reduction, const Link& link, Trouble& trouble) {
  const double rate = trouble.bytes_per_second;
  // What is still being written, or pulled as an object, slows down or shares the link.
  if (!HoldsOwn(reduction, link.below, link.sender.key)) return;
  if (!HoldsOwn(reduction, link.above, link.receiver.key)) return;
  if (Receives(link.below, link.sender.key) && !IsAhead(reduction, link, trouble)) {
    const absl::Duration passed = context_.now - trouble.since;
    if (passed < kLastLook) trouble.judge_at = context_.now + std::max(kFirstLook, passed);
    return;
  }
  const Verdict verdict = SlowEnd(reduction, link);
  const double usable = rate * Sharing(link);
  const double speed = usable / FastRate();
  links_.RecordBounds(link.sender.endpoint, link.receiver.endpoint, rate, kUncounted * usable,
                      context_.now);
  if (verdict.certain) {
    links_.NoteSlow((verdict.sender ? link.sender : link.receiver).endpoint, usable, context_.now);
  }
  Blame(reduction, link, verdict, trouble, speed);
}

bool FoldPaces::IsAhead(const Reduction& reduction, const Link& link,
                        const Trouble& trouble) const {
  const auto below = reduction.placed.find({link.sender.key, link.below.version});
  const auto above = reduction.placed.find({link.receiver.key, link.above.version});
  if (below == reduction.placed.end() || above == reduction.placed.end()) return false;
  const absl::Duration passed = context_.now - trouble.since;
  const absl::Duration risen = passed <= kPaceRiseWindow ? passed : kRiseUnheard;
  const double unheard = FastRate() * absl::ToDoubleSeconds(risen);
  const double low = kPaceRise * trouble.bytes_per_second * absl::ToDoubleSeconds(passed);
  // What the receiver has computed has arrived.
  const double arrived = std::max(static_cast<double>(trouble.watermark) + low + unheard,
                                  static_cast<double>(above->second.watermark));
  return static_cast<double>(below->second.watermark) >= arrived + kPaceProofBytes;
}

FoldPaces::Verdict FoldPaces::SlowEnd(const Reduction& reduction, const Link& link) const {
  const NodeKey& a = link.sender.key;
  const NodeKey& b = link.receiver.key;
  // What two slow links have in common is the slow node.
  for (const auto& [suspect, slow] : reduction.slow_nodes) {
    if (slow.silent || suspect == a || suspect == b) continue;
    if (slow.with != a && slow.with != b) continue;
    return {.sender = slow.with == a, .certain = true, .acquitted = suspect};
  }
  if (links_.SlowNode(link.sender.endpoint, context_.now).has_value()) {
    return {.sender = true, .certain = true};
  }
  if (links_.SlowNode(link.receiver.endpoint, context_.now).has_value()) {
    return {.sender = false, .certain = true};
  }
  // It receives more than it can hand on.
  if (Receives(link.below, a)) return {.sender = false, .certain = true};
  if (SeenFast(link.sender) != SeenFast(link.receiver)) return {.sender = SeenFast(link.receiver)};
  return {.sender = !reduction.slow_nodes.contains(b)};
}

void FoldPaces::Blame(Reduction& reduction, const Link& link, const Verdict& verdict,
                      const Trouble& trouble, double speed) {
  const NodeKey slow = (verdict.sender ? link.sender : link.receiver).key;
  const NodeKey peer = (verdict.sender ? link.receiver : link.sender).key;
  reduction.slow_nodes[slow] = {.speed = std::min(speed, LinkModel::kSlowShare),
                                .silent = trouble.silent,
                                .with = verdict.certain ? NodeKey() : peer};
  // Everything above gets as far as this input is: at least as far as the fold above has got since.
  const auto above = reduction.placed.find({link.receiver.key, link.above.version});
  const uint64_t computed = above == reduction.placed.end() ? 0 : above->second.watermark;
  reduction.plan.OnProgress(reduction.plan.RootVersion(), std::max(trouble.watermark, computed));
  // Held, so that the plan decides once. From here on it may drop its tasks: a source can turn out
  // to have failed.
  reduction.plan.Hold();
  if (verdict.acquitted.valid()) Acquit(reduction, verdict.acquitted);
  ReportSources(reduction, slow);
  reduction.plan.Release();
}

void FoldPaces::Acquit(Reduction& reduction, const NodeKey& node) {
  reduction.slow_nodes.erase(node);
  ReportSources(reduction, node);
}

bool FoldPaces::HoldsOwn(const Reduction& reduction, const FoldTask& task, const NodeKey& node) {
  const std::vector<ObjectId> own = OwnSources(task);
  return std::all_of(own.begin(), own.end(),
                     [&](const ObjectId& source) { return HoldsWhole(reduction, source, node); });
}

bool FoldPaces::HoldsWhole(const Reduction& reduction, const ObjectId& source,
                           const NodeKey& node) {
  const v1::SourceState state = watcher_.StateOfSource(reduction, source);
  return std::any_of(state.holders().begin(), state.holders().end(),
                     [&node](const v1::SourceState::Holder& holder) {
                       return holder.complete() && FromProto(holder.node()) == node;
                     });
}

double FoldPaces::Sharing(const Link& link) const {
  const auto pulled = [&link](const FoldInput& input) { return Pulled(input, link.receiver.key); };
  const auto inputs = std::count_if(link.above.inputs.begin(), link.above.inputs.end(), pulled);
  size_t examined = 0;
  size_t here = 0;
  for (const auto& [target, reduction] : catalog_.all()) {
    if (examined == kReductionsExamined) break;
    ++examined;
    if (FoldsAt(*reduction, link.sender.key) || FoldsAt(*reduction, link.receiver.key)) ++here;
  }
  return static_cast<double>(inputs) * static_cast<double>(here + catalog_.all().size() - examined);
}

bool FoldPaces::SeenFast(const Node& node) const {
  return links_.CanDo(node.endpoint, context_.now) >= LinkModel::kSlowShare * FastRate();
}

void FoldPaces::ReportSources(Reduction& reduction, const NodeKey& node) {
  for (const ObjectId& source : reduction.plan.HeldBy(node)) {
    watcher_.ReportSource(reduction, source);
  }
}

}  // namespace phalanx::directory
