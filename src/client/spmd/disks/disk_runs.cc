#include "src/client/spmd/disks/disk_runs.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "src/common/defects.h"

namespace phalanx::spmd::internal {
namespace {

// Whether a rank takes the first one rather than the second.
bool IsNewer(const DiskOffer& a, const DiskOffer& b) {
  if (DefectActive(Defect::kDiskRunsNotCompared)) return a.version > b.version;
  return std::tie(a.run, a.version) > std::tie(b.run, b.version);
}

}  // namespace

uint64_t ProposePlace(const DiskRun& newest, bool ended, uint32_t line) {
  if (newest.number > 0 && !ended) line = newest.line;
  return uint64_t{newest.number} << 32 | line;
}

DiskRun RunAt(uint64_t place, uint64_t id) {
  uint32_t number = static_cast<uint32_t>(place >> 32) + 1;
  if (DefectActive(Defect::kDiskRunNotRenewed) && number > 1) --number;
  return {number, static_cast<uint32_t>(place), id};
}

bool HasEnded(const DiskRun& run, absl::Span<const DiskRun> marks) {
  return std::any_of(marks.begin(), marks.end(), [&run](const DiskRun& mark) {
    return mark.line == run.line && mark.number >= run.number;
  });
}

std::vector<DiskRun> MarksOf(absl::Span<const DiskOffer> offers) {
  std::vector<DiskRun> marks;
  for (const DiskOffer& offer : offers) {
    for (const DiskRun& mark : offer.marks) {
      if (mark.number > 0) marks.push_back(mark);
    }
  }
  std::sort(marks.begin(), marks.end());
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  return marks;
}

DiskChoice ChooseFile(absl::Span<const DiskOffer> offers, bool local) {
  const std::vector<DiskRun> marks = MarksOf(offers);
  const DiskOffer* newest = nullptr;
  DiskChoice choice;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const DiskOffer& offer = offers[rank];
    if (offer.run.number == 0) continue;
    if (HasEnded(offer.run, marks)) return {DiskChoice::Kind::kAgain, {}, 0, 0};
    if (newest != nullptr && !IsNewer(offer, *newest)) continue;
    newest = &offer;
    choice = {DiskChoice::Kind::kTake, offer.run, offer.version, static_cast<int>(rank)};
  }
  if (newest == nullptr || !local) return choice;
  bool went_on = false;
  bool missing = false;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const DiskOffer& offer = offers[rank];
    if (offer.run == choice.run) {
      choice.version = std::min(choice.version, offer.version);
      went_on |= offer.first == 0;
    } else if (!std::exchange(missing, true)) {
      choice.rank = static_cast<int>(rank);
    }
  }
  if (missing) choice.kind = went_on ? DiskChoice::Kind::kMissing : DiskChoice::Kind::kOlder;
  return choice;
}

bool WasPassedOver(const DiskFile& file, const DiskRun& base, const DiskRun& run) {
  if (DefectActive(Defect::kDiskFilesRemovedEarly) && file.run == base) return true;
  return file.run > base && file.run < run;
}

bool IsFreed(const DiskFile& file, const DiskRun& run, uint64_t version) {
  return file.run < run || (file.run == run && file.version <= version);
}

bool NeedsMark(bool lives, bool restored) {
  return !DefectActive(Defect::kDiskEndNotMarked) && (lives || restored);
}

}  // namespace phalanx::spmd::internal
