// Objects as JSON and as lines of a list. Pure; any thread.
#ifndef PHALANX_RUNTIME_COMMAND_OBJECT_VIEW_H_
#define PHALANX_RUNTIME_COMMAND_OBJECT_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// Fields of `ls --json`: id, generation, size_bytes, slices, metadata (hexadecimal),
// complete_copies, partial_copies, waiting, deleted, inline_cached, conflicts, owned, holders (on
// how many nodes), refers_to (ids), reduced_from (ids of the sources of a reduction's result, in
// the order of the fold).
nlohmann::json SummaryAsJson(const v1::ObjectSummary& summary);

// The same, `waiting_nodes` (names), `copies_left_out`, `waiting_left_out` (how many the directory
// did not tell of), and `copies` in the order of the drawing, each with node,
// state, complete, primary, connected, pulling, sender (a name, or null), depth, descendants,
// receivers, bytes_present, bytes_received, bytes_sent_twice, bytes_per_second, elapsed_s,
// starved_s, repairs and held_up_by (null, or the sentence of HoldupText); and `reduction`, as
// ReductionAsJson has it, while the object is being computed, else null.
nlohmann::json ObjectAsJson(const v1::DescribeObjectResponse& object);

// The drawing of the object's tree and below it, after empty lines, the tree of the reduction that
// computes it, and who holds up whom.
std::string ObjectAsText(const v1::DescribeObjectResponse& object, bool unicode);

// A heading and a line per object.
std::string ObjectsAsTable(const v1::ListObjectsResponse& list);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_OBJECT_VIEW_H_
