#include "src/jobs/group/group_recovery.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::jobs {
namespace {

const NodeReport::Call* Find(const NodeReport& report, uint64_t number) {
  for (const NodeReport::Call& call : report.calls) {
    if (call.number == number) return &call;
  }
  return nullptr;
}

// What the reports say of one call.
struct Found {
  std::optional<CallSpec> spec;
  uint32_t members = 0;
  std::optional<uint32_t> holder;  // the first node with a result
  bool failed = false;
  bool differs = false;
};

Found Look(const std::vector<NodeReport>& reports, uint64_t number) {
  Found found;
  for (size_t node = 0; node < reports.size(); ++node) {
    const NodeReport& report = reports[node];
    if (report.fresh || report.ended < number || number < report.first) continue;
    const NodeReport::Call* call = Find(reports[node], number);
    if (call == nullptr) {
      found.failed = true;
      continue;
    }
    if (found.spec.has_value() && !(*found.spec == call->spec)) found.differs = true;
    if (!found.spec.has_value()) found.spec = call->spec;
    if (call->end == CallEnd::kResult && !found.holder.has_value()) {
      found.holder = static_cast<uint32_t>(node);
      found.members = call->members;
    }
  }
  return found;
}

ResumeOrder::Call Failed(absl::string_view why) {
  ResumeOrder::Call call;
  call.fate = Fate::kFail;
  call.why = std::string(why);
  return call;
}

ResumeOrder::Call Decide(const Found& found) {
  ResumeOrder::Call call;
  if (found.failed) return Failed("the call failed on another node");
  if (found.differs) return Failed("the members' calls differ");
  if (!found.holder.has_value() || DefectActive(Defect::kGroupResultNotAdopted)) return call;
  call.spec = *found.spec;
  call.members = found.members;
  if (found.spec->kind == CallKind::kReduce || found.spec->kind == CallKind::kBarrier) {
    call.fate = Fate::kEnd;
  } else if (SameForAll(found.spec->kind)) {
    call.fate = Fate::kAdopt;
    call.holder = *found.holder;
  } else if (found.spec->on_loss != OnLoss::kWait) {
    return Failed("a member ended when some members had their parts of the result");
  }
  return call;
}

// Of the calls up to `last`: a member that enters makes the later ones after the state that it
// restores.
NewestKeep FindNewest(const std::vector<NodeReport>& reports, uint64_t last) {
  NewestKeep newest;
  for (const NodeReport& report : reports) {
    if (report.newest.call > newest.call) newest = report.newest;
    for (const NodeReport::Call& call : report.calls) {
      const bool counts = call.number <= last && !DefectActive(Defect::kGroupOlderKeepTaken);
      if (counts) newest.Take(call.number, call.spec);
    }
  }
  return newest;
}

}  // namespace

ResumeOrder DecideResume(const std::vector<NodeReport>& reports) {
  ResumeOrder order;
  bool any = false;
  for (const NodeReport& report : reports) {
    if (report.fresh) continue;
    order.ended = any ? std::min(order.ended, report.ended) : report.ended;
    order.last = std::max(order.last, report.ended);
    any = true;
  }
  order.base = order.last;
  // Nodes are further apart only by calls that have failed.
  const uint64_t last = std::min(order.last, order.ended + kMaxKeptCalls);
  for (uint64_t number = order.ended + 1; number <= last; ++number) {
    ResumeOrder::Call call = Decide(Look(reports, number));
    if (call.fate == Fate::kRun) order.base = std::min(order.base, number - 1);
    for (size_t node = 0; node < reports.size() && call.fate == Fate::kAdopt; ++node) {
      const NodeReport& report = reports[node];
      const bool lacks = report.fresh ? number > order.base : report.ended < number;
      if (lacks) call.takers.push_back(static_cast<uint32_t>(node));
    }
    order.calls.push_back(std::move(call));
  }
  order.newest = FindNewest(reports, order.base + 1);
  for (const NodeReport& report : reports) {
    order.firsts.push_back(report.fresh ? order.base + 1 : report.first);
  }
  if (DefectActive(Defect::kGroupBaseOneLate) && order.base > 0) ++order.base;
  return order;
}

}  // namespace phalanx::jobs
