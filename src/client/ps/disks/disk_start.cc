#include "src/client/ps/disks/disk_start.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {
namespace {

using Kind = DiskStart::Kind;

constexpr char kRemedy[] =
    "Bring its files there, or remove those of this job of all servers to begin anew";

bool Has(const DiskOffer& offer, const PartState& at) {
  return std::binary_search(offer.states.begin(), offer.states.end(), at);
}

bool HasLine(const DiskOffer& offer, uint64_t line) {
  return std::any_of(offer.states.begin(), offer.states.end(),
                     [line](const PartState& at) { return at.line == line; });
}

std::string StatesOf(const DiskOffer& offer, uint64_t line) {
  std::vector<uint64_t> states;
  for (const PartState& at : offer.states) {
    if (at.line == line) states.push_back(at.state);
  }
  return states.empty() ? "none" : absl::StrJoin(states, ", ");
}

// Of files with more than the beginning of a table.
std::set<uint64_t> LinesWithProgress(absl::Span<const DiskOffer> offers) {
  std::set<uint64_t> lines;
  for (const DiskOffer& offer : offers) {
    for (const PartState& at : offer.states) {
      if (at.state > 0) lines.insert(at.line);
    }
  }
  return lines;
}

// The line of a job of which nothing but its beginning is on disks.
uint64_t LineOfBeginning(absl::Span<const DiskOffer> offers, uint64_t new_line) {
  for (const DiskOffer& offer : offers) {
    if (!offer.states.empty()) return offer.states.front().line;
  }
  return new_line;
}

// Some stand somewhere: rule 5.
absl::StatusOr<DiskStart> Join(const std::string& table, bool exact,
                               absl::Span<const DiskOffer> offers, uint64_t new_line) {
  DiskStart start{.line = LineOfBeginning(offers, new_line)};
  std::set<uint64_t> places;
  std::optional<size_t> lacks;
  const std::set<uint64_t> lines = LinesWithProgress(offers);
  if (lines.size() == 1) start.line = *lines.begin();
  for (size_t rank = offers.size(); rank-- > 0;) {
    if (offers[rank].at.has_value()) places.insert(*offers[rank].at);
    if (!offers[rank].at.has_value()) lacks = rank;
    if (offers[rank].line != 0) start.line = offers[rank].line;
  }
  if (!lacks.has_value()) return start;
  if (!exact) {
    start.kind = Kind::kNewest;
    return start;
  }
  if (places.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("table \"", table, "\": server ", *lacks,
                     " has no snapshot in the store, and others go on from "
                     "there at clocks ",
                     absl::StrJoin(places, " and "),
                     ". End all tasks and nodes, and start them again: then all servers go on from "
                     "their files"));
  }
  start.state = *places.begin();
  start.kind = start.state == 0 ? Kind::kEmpty : Kind::kState;
  for (size_t rank = 0; rank < offers.size() && start.state > 0; ++rank) {
    if (offers[rank].at.has_value() || Has(offers[rank], {start.line, start.state})) continue;
    return absl::NotFoundError(absl::StrCat("table \"", table, "\": server ", rank,
                                            " has no snapshot in the store, and no file of clock ",
                                            start.state, ", where the others are; it has ",
                                            StatesOf(offers[rank], start.line),
                                            ". End all tasks and nodes, and start them again: then "
                                            "all servers go on from their files"));
  }
  return start;
}

}  // namespace

bool IsExact(const TableSpec& spec) {
  return spec.sync == Sync::kBsp && spec.on_loss == OnLoss::kWait && spec.snapshot_every > 0;
}

absl::StatusOr<DiskStart> ChooseStart(const std::string& table, bool exact,
                                      absl::Span<const DiskOffer> offers, uint64_t new_line) {
  if (std::any_of(offers.begin(), offers.end(),
                  [](const DiskOffer& offer) { return offer.at.has_value(); })) {
    return Join(table, exact, offers, new_line);
  }
  const std::set<uint64_t> lines = LinesWithProgress(offers);
  if (lines.empty()) return DiskStart{.line = LineOfBeginning(offers, new_line)};
  if (lines.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table \"", table, "\": servers have files of ", lines.size(),
        " histories of this job, perhaps because it has ended or begun anew while a host was away. "
        "Remove those that are not to count: ",
        absl::StrJoin(lines, ", ", [](std::string* out, uint64_t line) {
          absl::StrAppend(out, absl::Hex(line, absl::kZeroPad16));
        })));
  }
  const uint64_t line = *lines.begin();
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (HasLine(offers[rank], line)) continue;
    return absl::NotFoundError(absl::StrCat("table \"", table, "\": server ", rank,
                                            " has no file of it in its directory of checkpoints, "
                                            "and others have. ",
                                            kRemedy));
  }
  if (!exact) return DiskStart{.kind = Kind::kNewest, .line = line};
  for (auto at = offers[0].states.rbegin(); at != offers[0].states.rend(); ++at) {
    if (at->line != line) continue;
    if (std::all_of(offers.begin(), offers.end(),
                    [at](const DiskOffer& offer) { return Has(offer, *at); })) {
      return DiskStart{.kind = Kind::kState, .line = line, .state = at->state};
    }
  }
  std::vector<std::string> have;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    have.push_back(absl::StrCat("server ", rank, ": ", StatesOf(offers[rank], line)));
  }
  return absl::NotFoundError(absl::StrCat("table \"", table,
                                          "\": there is no clock of which all servers have a file "
                                          "(",
                                          absl::StrJoin(have, "; "), "). ", kRemedy));
}

}  // namespace phalanx::ps::internal
