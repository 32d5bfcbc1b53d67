#include "src/client/ps/disks/disk_start.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {
namespace {

using Kind = DiskStart::Kind;
using Offers = std::vector<DiskOffer>;

constexpr char kRemedy[] =
    "Bring its files there, or remove those of this job of all servers to begin anew";
constexpr char kEndAll[] =
    "End all tasks and nodes, and start them again: then all servers go on from their files";

// In the store, or with what it has begun in this life.
bool Stands(const DiskOffer& offer) { return offer.at.has_value(); }

bool Has(const DiskOffer& offer, const PartState& at) {
  return std::binary_search(offer.states.begin(), offer.states.end(), at);
}

// Further than the beginning of a table: its state 0, and the first snapshot.
bool HasGoneOn(const DiskOffer& offer) {
  const auto later = [](const PartState& at) { return at.state > 1; };
  return offer.moved || offer.at.value_or(0) > 1 ||
         std::any_of(offer.states.begin(), offer.states.end(), later);
}

// Of any line of the family, also the beginning of the table.
bool HasFamily(const DiskOffer& offer, uint64_t line) {
  return std::any_of(offer.states.begin(), offer.states.end(),
                     [line](const PartState& at) { return FamilyOf(at.line) == FamilyOf(line); });
}

// For errors: what is there, whatever the line is.
std::string StatesOf(const DiskOffer& offer, uint64_t line) {
  std::vector<uint64_t> states;
  for (const PartState& at : offer.states) {
    if (FamilyOf(at.line) == FamilyOf(line)) states.push_back(at.state);
  }
  return states.empty() ? "none" : absl::StrJoin(states, ", ");
}

// Of files with more than the beginning of a table.
std::set<uint64_t> LinesWithProgress(const Offers& offers) {
  std::set<uint64_t> lines;
  for (const DiskOffer& offer : offers) {
    for (const PartState& at : offer.states) {
      if (at.state > 0) lines.insert(at.line);
    }
  }
  return lines;
}

// More than one: a host has files of another run of the job.
std::set<uint64_t> FamiliesOf(const std::set<uint64_t>& lines) {
  std::set<uint64_t> families;
  for (const uint64_t line : lines) families.insert(FamilyOf(line));
  return families;
}

// The line of a job of which nothing but its beginning is on disks.
uint64_t LineOfBeginning(const Offers& offers, uint64_t new_line) {
  for (const DiskOffer& offer : offers) {
    if (!offer.states.empty()) return offer.states.front().line;
  }
  return new_line;
}

// ---- some servers stand somewhere: rule 5

// A file of a clock behind that with which the server goes on: what comes again as that clock can
// have other bits, and until all servers have it anew, theirs of before would seem to fit.
bool IsAhead(const DiskOffer& offer, uint64_t line) {
  return std::any_of(offer.states.begin(), offer.states.end(),
                     [&](const PartState& at) { return at.line == line && at.state > *offer.at; });
}

// The line that is written from now on. A server that lives on knows it.
uint64_t LineOfJoin(bool exact, const Offers& offers, uint64_t new_line) {
  for (const DiskOffer& offer : offers) {
    if (offer.line != 0) return offer.line;
  }
  const std::set<uint64_t> lines = LinesWithProgress(offers);
  if (lines.empty()) return LineOfBeginning(offers, new_line);
  // Which of them the snapshots in the store are of is not known.
  if (FamiliesOf(lines).size() > 1) return new_line;
  const uint64_t line = *lines.rbegin();
  std::set<uint64_t> places;
  bool ahead = false;
  for (const DiskOffer& offer : offers) {
    if (!Stands(offer)) continue;
    places.insert(*offer.at);
    ahead = ahead || IsAhead(offer, line);
  }
  return line + (exact && (places.size() > 1 || ahead) ? 1 : 0);
}

// The line of the file of this state with which a server begins that lacks a snapshot; 0: none.
uint64_t LineOfState(const Offers& offers, const DiskOffer& offer, const PartState& at) {
  for (const DiskOffer& other : offers) {
    if (!Stands(other) || other.from == 0) continue;
    return Has(offer, {other.from, at.state}) ? other.from : 0;
  }
  uint64_t line = 0;
  for (const PartState& state : offer.states) {
    const bool of_it = FamilyOf(state.line) == FamilyOf(at.line) && state.line <= at.line;
    if (of_it && state.state == at.state) line = state.line;
  }
  return line;
}

// What a server that stands somewhere has is not asked: it goes on from there, and only learns the
// line. An error is that of all servers, which is the one that names what is missing.
absl::StatusOr<DiskStart> Join(const DiskTable& table, const Offers& offers, uint64_t new_line) {
  DiskStart start{.line = LineOfJoin(table.exact, offers, new_line)};
  start.from = start.line;
  std::set<uint64_t> places;
  std::optional<size_t> lacks, moved, beyond;
  for (size_t rank = offers.size(); rank-- > 0;) {
    if (HasGoneOn(offers[rank])) beyond = rank;
    if (!Stands(offers[rank])) {
      lacks = rank;
      continue;
    }
    places.insert(*offers[rank].at);
    if (offers[rank].moved) moved = rank;
  }
  if (!lacks.has_value()) return start;
  const std::string prefix = absl::StrCat("table \"", table.name, "\": server ", *lacks);
  if (table.exact && moved.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(prefix, " has no snapshot in the store any more, and server ", *moved,
                     " has gone on since it has begun. ", kEndAll));
  }
  // Without an exact state it begins with what it has: its workers keep what came after that, or
  // notice that they do not. With nothing at all new workers would notice nothing.
  if (!table.exact && beyond.has_value() && !HasFamily(offers[*lacks], start.line)) {
    return absl::FailedPreconditionError(
        absl::StrCat(prefix, " has no snapshot in the store any more, and no file; server ",
                     *beyond, " has gone on. ", kEndAll));
  }
  if (!table.exact) {
    start.kind = Kind::kNewest;
    return start;
  }
  if (places.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(prefix,
                     " has no snapshot in the store, and others go on from "
                     "there at clocks ",
                     absl::StrJoin(places, " and "), ". ", kEndAll));
  }
  start.state = *places.begin();
  start.kind = start.state == 0 ? Kind::kEmpty : Kind::kState;
  for (size_t rank = 0; rank < offers.size() && start.state > 0; ++rank) {
    if (Stands(offers[rank])) continue;
    start.from = LineOfState(offers, offers[rank], {start.line, start.state});
    if (start.from != 0) continue;
    return absl::NotFoundError(absl::StrCat("table \"", table.name, "\": server ", rank,
                                            " has no snapshot in the store, and no file of clock ",
                                            start.state, ", where the others are; it has ",
                                            StatesOf(offers[rank], start.line), ". ", kEndAll));
  }
  return start;
}

// ---- all servers begin from disks

// What the servers have in common of an exact table: from a clock to the line of its files.
using Common = std::map<uint64_t, uint64_t>;

// The states of an earlier line count if they are older than all that are there of a later one.
Common CommonStates(const Offers& offers, const std::set<uint64_t>& lines) {
  Common common;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const uint64_t before = common.empty() ? ~uint64_t{0} : common.begin()->first;
    for (const PartState& at : offers[0].states) {
      if (at.line != *line || at.state >= before) continue;
      const bool all = std::all_of(offers.begin(), offers.end(),
                                   [&](const DiskOffer& offer) { return Has(offer, at); });
      if (all) common[at.state] = at.line;
    }
  }
  return common;
}

// A table of which none of the servers stands anywhere.
struct History {
  DiskStart start;  // of a table that is not exact, or has nothing but its beginning
  bool begun = false;
  uint64_t newest_line = 0;
  Common common;
};

// The errors name a server whose files are missing, or the lines that do not go together.
absl::StatusOr<History> HistoryOf(const DiskTable& table, const Offers& offers, uint64_t new_line) {
  History history;
  const std::set<uint64_t> lines = LinesWithProgress(offers);
  if (lines.empty()) {
    const uint64_t line = LineOfBeginning(offers, new_line);
    history.start = {.line = line, .from = line, .all = true};
    history.begun = std::any_of(offers.begin(), offers.end(),
                                [](const DiskOffer& offer) { return !offer.states.empty(); });
    history.common[0] = line;
    return history;
  }
  if (FamiliesOf(lines).size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table \"", table.name, "\": servers have files of ", FamiliesOf(lines).size(),
        " histories of this job, perhaps because it has ended or begun anew while a host was away. "
        "Remove those that are not to count: ",
        absl::StrJoin(lines, ", ", [](std::string* out, uint64_t line) {
          absl::StrAppend(out, absl::Hex(line, absl::kZeroPad16));
        })));
  }
  const uint64_t line = *lines.rbegin();
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (HasFamily(offers[rank], line)) continue;
    return absl::NotFoundError(absl::StrCat("table \"", table.name, "\": server ", rank,
                                            " has no file of it in its directory of checkpoints, "
                                            "and others have. ",
                                            kRemedy));
  }
  history.begun = true;
  history.newest_line = line;
  history.start = {.kind = Kind::kNewest, .line = line, .from = line, .all = true};
  if (!table.exact) return history;
  history.common = CommonStates(offers, lines);
  if (!history.common.empty()) return history;
  std::vector<std::string> have;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    have.push_back(absl::StrCat("server ", rank, ": ", StatesOf(offers[rank], line)));
  }
  return absl::NotFoundError(absl::StrCat("table \"", table.name,
                                          "\": there is no clock of which all servers have a file "
                                          "(",
                                          absl::StrJoin(have, "; "), "). ", kRemedy));
}

// Exact tables with the same snapshot_every.
struct Group {
  std::vector<size_t> tables;  // that begin from disks
  std::set<uint64_t> places;   // of servers, in other tables
};

// Whether the program seems to end the clocks of these tables together: then what all servers have
// of each is of about the same clock. Servers are a clock apart, and can pass over a state.
bool AreTogether(const Group& group, const std::vector<History>& histories, uint64_t every) {
  std::set<uint64_t> newest = group.places;
  for (const size_t table : group.tables) newest.insert(histories[table].common.rbegin()->first);
  return *newest.rbegin() - *newest.begin() <= 2 * every;
}

// The greatest clock of which each of the tables has states of all servers. Those that stand in the
// store have chosen it already.
absl::StatusOr<uint64_t> ChooseClock(const Group& group, const std::vector<History>& histories,
                                     absl::Span<const DiskTable> tables) {
  std::vector<std::string> have;
  const auto has = [](const History& history, uint64_t clock) {
    return history.common.contains(clock);
  };
  const Common& first = histories[group.tables.front()].common;
  for (auto clock = first.rbegin(); clock != first.rend(); ++clock) {
    const bool of_places = std::all_of(group.places.begin(), group.places.end(),
                                       [&](uint64_t place) { return place == clock->first; });
    const bool all = std::all_of(group.tables.begin(), group.tables.end(),
                                 [&](size_t table) { return has(histories[table], clock->first); });
    if (all && of_places) return clock->first;
  }
  for (const size_t table : group.tables) {
    std::vector<uint64_t> clocks;
    for (const auto& [clock, line] : histories[table].common) clocks.push_back(clock);
    have.push_back(
        absl::StrCat("table \"", tables[table].name, "\": ", absl::StrJoin(clocks, ", ")));
  }
  for (const uint64_t place : group.places) {
    have.push_back(absl::StrCat("in the store, of another table: ", place));
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no clock of which all servers have files of all tables with kBsp and "
      "snapshot_every ",
      tables[group.tables.front()].every, ", whose clocks end together (",
      absl::StrJoin(have, "; "),
      "). Bring the files that are missing, or remove those of this job of all servers to begin "
      "anew"));
}

}  // namespace

bool IsExact(const TableSpec& spec) {
  return spec.sync == Sync::kBsp && spec.on_loss == OnLoss::kWait && spec.snapshot_every > 0;
}

uint64_t FirstLine(uint64_t random) { return std::max<uint64_t>(1, FamilyOf(random)) << kLineBits; }

absl::StatusOr<std::vector<DiskStart>> ChooseStarts(absl::Span<const DiskTable> tables,
                                                    absl::Span<const Offers> offers,
                                                    uint64_t new_line) {
  std::vector<DiskStart> starts(tables.size());
  std::vector<History> histories(tables.size());
  std::map<uint32_t, Group> groups;  // by snapshot_every
  for (size_t table = 0; table < tables.size(); ++table) {
    const bool stand = std::any_of(offers[table].begin(), offers[table].end(), Stands);
    if (stand) {
      PHALANX_ASSIGN_OR_RETURN(starts[table], Join(tables[table], offers[table], new_line));
      for (const DiskOffer& offer : offers[table]) {
        if (tables[table].exact && Stands(offer)) {
          groups[tables[table].every].places.insert(*offer.at);
        }
      }
      continue;
    }
    PHALANX_ASSIGN_OR_RETURN(histories[table], HistoryOf(tables[table], offers[table], new_line));
    starts[table] = histories[table].start;
    // One that the program did not have before begins now.
    if (tables[table].exact && histories[table].begun) {
      groups[tables[table].every].tables.push_back(table);
    }
  }
  for (const auto& [every, group] : groups) {
    if (group.tables.empty()) continue;
    const bool together = AreTogether(group, histories, every);
    uint64_t clock = 0;
    if (together) {
      PHALANX_ASSIGN_OR_RETURN(clock, ChooseClock(group, histories, tables));
    }
    for (const size_t table : group.tables) {
      const History& history = histories[table];
      if (history.newest_line == 0) continue;
      if (!together) clock = history.common.rbegin()->first;
      const uint64_t from = history.common.at(clock);
      // Behind a later line, of which not all servers have a state, begins another one.
      const uint64_t line = from == history.newest_line ? from : history.newest_line + 1;
      starts[table] = {
          .kind = Kind::kState, .line = line, .from = from, .state = clock, .all = true};
    }
  }
  return starts;
}

}  // namespace phalanx::ps::internal
