// The nodes, transfers and reductions of a cluster as `phalanx top` shows them. Pure; any thread.
#ifndef PHALANX_CLI_VIEWS_TOP_VIEW_H_
#define PHALANX_CLI_VIEWS_TOP_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "phalanx/v1/tools.pb.h"
#include "src/cli/views/status_view.h"

namespace phalanx::runtime {

// An object that nodes fetch or wait for.
struct Transfer {
  v1::ObjectSummary summary;
  double bytes_per_second = 0;
  // The hold-up of most of its nodes; empty if there is none.
  std::string held_up_by;
};

// "name" in natural order; "used", "copies", "pulls", "pushes": the largest first.
const std::vector<std::string>& NodeOrders();
// "rate", "size", "waiting" (nodes that fetch or wait): the largest first.
const std::vector<std::string>& TransferOrders();

// REQUIRES: `order` is one of NodeOrders() or TransferOrders(). Equal ones keep their order.
void SortNodes(const std::string& order, std::vector<ClusterNode>& nodes);
void SortTransfers(const std::string& order, std::vector<Transfer>& transfers);

struct TopView {
  ClusterStatus cluster;
  std::vector<Transfer> transfers;
  std::vector<v1::RunningReduction> reductions;
};

// The part of a terminal that can be used.
struct Pane {
  int rows = 0;
  int columns = 0;
  bool colours = false;
  // A last line, about keys, if there is room for it.
  std::string footer = {};
};

// All of it, for an output that is no terminal.
std::string TopAsText(const TopView& view);
// At most `pane.rows` lines; from eight on, some of each table. Tables omit columns to fit, but a
// line can still be wider than the pane.
std::string TopAsText(const TopView& view, const Pane& pane);
nlohmann::json TopAsJson(const TopView& view);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_TOP_VIEW_H_
