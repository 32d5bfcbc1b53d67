#include "src/ps_lite/keeper/kinds.h"

namespace phalanx::ps_lite {

bool Kinds::Report(Peer server, int app, Kind kind, Time now) {
  if (decided_.count(app) > 0) return false;
  App& of = apps_[app];
  if (of.reported.empty()) {
    of.kind = kind;
    of.since = now;
  }
  if (of.kind != kind) of.kind = kFunctions;
  of.reported.insert(server);
  if (of.kind != kFunctions && static_cast<int>(of.reported.size()) < servers_) return false;
  decided_[app] = of.kind;
  return true;
}

std::vector<int> Kinds::GiveUp(Time now) {
  std::vector<int> late;
  for (const auto& [app, of] : apps_) {
    if (decided_.count(app) > 0 || now - of.since < kReportPatience) continue;
    decided_[app] = kFunctions;
    late.push_back(app);
  }
  return late;
}

}  // namespace phalanx::ps_lite
