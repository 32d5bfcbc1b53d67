// Kinds: the keeper's (Settings) list of what handles the requests of each app of KVServer: a table
// of the parameter server, or functions of the servers. Pure; one thread at a time.
//
// An app is a table when all servers have reported the same type of values, and is none as soon as
// one has reported another one, or a function, or if some have reported nothing for a while: a
// program can have an app at one server alone. That is decided once. Workers send nothing to an app
// before: a server that dies before it has reported a function has lost nothing with it.
#ifndef PHALANX_PS_LITE_KEEPER_KINDS_H_
#define PHALANX_PS_LITE_KEEPER_KINDS_H_

#include <chrono>
#include <map>
#include <set>
#include <vector>

#include "ps/internal/message.h"
#include "src/ps_lite/peer.h"

namespace phalanx::ps_lite {

// What handles the requests of an app: a table of values of this type, or with OTHER functions.
using Kind = ::ps::DataType;
inline constexpr Kind kFunctions = ::ps::OTHER;

// How long the reports of the other servers are waited for. Less than a request waits at a worker.
inline constexpr std::chrono::seconds kReportPatience{30};

class Kinds {
 public:
  explicit Kinds(int servers) : servers_(servers) {}

  using Time = std::chrono::steady_clock::time_point;

  // A server has set the handler of an app, perhaps again. Returns whether this has decided it.
  bool Report(Peer server, int app, Kind kind, Time now);
  // Returns the apps of which the first report is older than kReportPatience: they are decided now.
  std::vector<int> GiveUp(Time now);
  // By app.
  const std::map<int, Kind>& decided() const { return decided_; }

 private:
  struct App {
    std::set<Peer> reported;
    Kind kind = kFunctions;
    Time since = {};
  };

  const int servers_;
  std::map<int, App> apps_;
  std::map<int, Kind> decided_;
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_KEEPER_KINDS_H_
