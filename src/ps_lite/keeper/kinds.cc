#include "src/ps_lite/keeper/kinds.h"

#include <algorithm>

namespace phalanx::ps_lite {

bool Kinds::Report(Peer server, int app, Kind kind) {
  if (decided_.count(app) > 0) return false;
  apps_[app].reported[server] = kind;
  return Decide(app);
}

bool Kinds::Ask(int app, Time now) {
  if (decided_.count(app) > 0) return false;
  App& of = apps_[app];
  if (!of.asked.has_value()) of.asked = now;
  return Decide(app);
}

// A function at once: no server can have got a request before, and whatever handle follows can run
// in its process.
bool Kinds::Decide(int app) {
  const App& of = apps_[app];
  if (of.reported.empty()) return false;
  const Kind first = of.reported.begin()->second;
  const bool differ = std::any_of(of.reported.begin(), of.reported.end(),
                                  [first](const auto& each) { return each.second != first; });
  const bool function = std::any_of(of.reported.begin(), of.reported.end(),
                                    [](const auto& each) { return each.second == kFunctions; });
  const bool all = static_cast<int>(of.reported.size()) == servers_;
  if (!function && (!of.asked.has_value() || (!differ && !all))) return false;
  decided_[app] = differ || function ? kFunctions : first;
  return true;
}

std::vector<int> Kinds::GiveUp(Time now) {
  std::vector<int> late;
  for (const auto& [app, of] : apps_) {
    const bool waits = decided_.count(app) == 0 && of.asked.has_value();
    if (!waits || now - *of.asked < kReportPatience) continue;
    decided_[app] = kFunctions;
    late.push_back(app);
  }
  return late;
}

void Kinds::Prolong(Time now) {
  for (auto& [app, of] : apps_) {
    if (of.asked.has_value()) of.asked = now;
  }
}

}  // namespace phalanx::ps_lite
