// Objects as JSON and as lines of a list. Pure; any thread.
#ifndef PHALANX_CLI_VIEWS_OBJECT_VIEW_H_
#define PHALANX_CLI_VIEWS_OBJECT_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// Fields of `ls --json`: id, generation, size_bytes, slices, metadata (hexadecimal),
// complete_copies, partial_copies, waiting, age_s (since the object was adopted or deleted),
// deleted, inline_cached, conflicts, owned, holders (the number of nodes), sticky, copies_wanted
// (primary copies, each on another host; 0 if no number is wanted), copies_there (hosts that have
// one), scope (its name and number; null if the object is in none), ttl_s (what is left of the time
// to live; null if the object has none), name and namespace
// (null if it has no name), refers_to (ids), reduced_from (ids of the sources of a reduction's
// result, in the order of the fold).
nlohmann::json SummaryAsJson(const v1::ObjectSummary& summary);

// The same fields, and `waiting_nodes` (names), `copies_left_out` and `waiting_left_out` (how many
// the directory omitted), and `copies` in the order of the drawing. Each copy has node, state,
// complete, primary, connected, pulling, sender (a name, or null), depth, descendants, receivers,
// bytes_present, bytes_received, bytes_sent_twice, bytes_per_second, elapsed_s, starved_s, repairs
// and held_up_by (null, or the text of HoldupText). `reduction` is the result of ReductionAsJson
// while the object is being computed, else null. `troubles`: for each node that reaches no node
// with bytes of the object, the pair, and the node that hands the bytes on.
nlohmann::json ObjectAsJson(const v1::DescribeObjectResponse& object);

// The drawing of the object's tree. Below it, after empty lines: the tree of the reduction that
// computes the object, the pairs of nodes that cannot reach each other, and the hold-ups with the
// nodes that wait for them.
std::string ObjectAsText(const v1::DescribeObjectResponse& object, bool unicode,
                         bool colours = false);

// A heading, and a line per object.
std::string ObjectsAsTable(const v1::ListObjectsResponse& list);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_OBJECT_VIEW_H_
