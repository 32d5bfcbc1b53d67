// Kinds: the keeper's (Settings) list of what handles the requests of each app of KVServer: a table
// of the parameter server, or functions of the servers. Pure; one thread at a time.
//
// What a server reports last counts, until it is decided, once for all:
//
//   functions   as soon as a server reports a function
//   a table     when a process asks, and all servers have reported the same type of values
//   functions   when a process asks, and these differ, or some servers have reported nothing for a
//               while: a program can have an app at one server alone, or a server without KVServer
//
// Processes ask before their first request, which waits for the answer. So a server that dies
// before it has reported a function has lost nothing with it.
#ifndef PHALANX_PS_LITE_KEEPER_KINDS_H_
#define PHALANX_PS_LITE_KEEPER_KINDS_H_

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "ps/internal/message.h"
#include "src/ps_lite/peer.h"

namespace phalanx::ps_lite {

// What handles the requests of an app: a table of values of this type, or with OTHER functions.
using Kind = ::ps::DataType;
inline constexpr Kind kFunctions = ::ps::OTHER;

// How long the reports of all servers are waited for, from the first question on.
inline constexpr std::chrono::seconds kReportPatience{30};

class Kinds {
 public:
  explicit Kinds(int servers) : servers_(servers) {}

  using Time = std::chrono::steady_clock::time_point;

  // A server has set the handler of an app, perhaps again. Returns whether this has decided it.
  bool Report(Peer server, int app, Kind kind);
  // The same for a question of any process.
  bool Ask(int app, Time now);
  // Returns the apps of which the first question is older than kReportPatience: they are decided
  // now.
  std::vector<int> GiveUp(Time now);
  // Servers are away: the time until now does not count.
  void Prolong(Time now);
  // By app.
  const std::map<int, Kind>& decided() const { return decided_; }

 private:
  struct App {
    std::map<Peer, Kind> reported;
    std::optional<Time> asked;
  };
  bool Decide(int app);

  const int servers_;
  std::map<int, App> apps_;
  std::map<int, Kind> decided_;
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_KEEPER_KINDS_H_
