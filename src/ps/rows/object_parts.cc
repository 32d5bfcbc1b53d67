#include "src/ps/rows/object_parts.h"

#include <algorithm>
#include <cstring>

#include "phalanx/elements.h"
#include "src/common/ids/ids.h"

namespace phalanx::ps::internal {
namespace {

uint64_t RowBytes(const TableSpec& spec) { return spec.width * ElementSize(spec.dtype); }

// Consecutive keys of a part that lie together among all rows: all of a range, or a block.
uint64_t RunOf(const TableSpec& spec, const Splitter& splitter, int server) {
  const bool blocks = spec.split == Split::kBlocks && splitter.parts() > 1;
  return blocks ? spec.block : splitter.KeysOf(server);
}

// Calls `copy` with each run of consecutive keys of a part: the first key, the place of that key,
// and how many there are. A range is one run, and blocks are one each.
template <typename Copy>
void ForEachRun(const TableSpec& spec, const Splitter& splitter, int server, const Copy& copy) {
  const uint64_t keys = splitter.KeysOf(server);
  const uint64_t run = RunOf(spec, splitter, server);
  for (uint64_t place = 0; place < keys; place += run) {
    copy(splitter.KeyAt(server, place), place, std::min(run, keys - place));
  }
}

}  // namespace

// Parts differ by a block at most; each is looked at, as no server's may be too small.
bool IsObjectTable(const TableSpec& spec, const Splitter& splitter, uint64_t least) {
  if (spec.keys == 0 || spec.wire != spec.dtype || spec.split == Split::kHash) return false;
  // An object has at least one row.
  least = std::max<uint64_t>(least, 1);
  for (int server = 0; server < splitter.parts(); ++server) {
    if (ObjectPartBytes(spec, splitter, server) < least) return false;
  }
  return true;
}

bool PushesObjects(const TableSpec& spec, const Splitter& splitter, int workers, uint64_t least) {
  return IsObjectTable(spec, splitter, least) && spec.sync == Sync::kBsp &&
         spec.update != Update::kAssign && workers >= 1 &&
         static_cast<size_t>(workers) <= kMaxReduceSources;
}

uint64_t MaxClockObjects(int workers) { return kMaxReduceSources / static_cast<size_t>(workers); }

uint64_t ObjectPartBytes(const TableSpec& spec, const Splitter& splitter, int server) {
  return splitter.KeysOf(server) * RowBytes(spec);
}

void GatherPart(const TableSpec& spec, const Splitter& splitter, int server, const void* rows,
                void* part) {
  const uint64_t row = RowBytes(spec);
  ForEachRun(spec, splitter, server, [&](Key key, uint64_t place, uint64_t count) {
    std::memcpy(static_cast<char*>(part) + place * row, static_cast<const char*>(rows) + key * row,
                count * row);
  });
}

void ScatterPart(const TableSpec& spec, const Splitter& splitter, int server, const void* part,
                 void* rows) {
  const uint64_t row = RowBytes(spec);
  ForEachRun(spec, splitter, server, [&](Key key, uint64_t place, uint64_t count) {
    std::memcpy(static_cast<char*>(rows) + key * row, static_cast<const char*>(part) + place * row,
                count * row);
  });
}

// They can begin and end within a row.
void ScatterBytes(const TableSpec& spec, const Splitter& splitter, int server, uint64_t place,
                  absl::string_view bytes, void* rows) {
  const uint64_t row = RowBytes(spec);
  const uint64_t run = RunOf(spec, splitter, server) * row;
  while (!bytes.empty()) {
    const uint64_t begin = place / run * run;  // of the run
    const uint64_t count = std::min<uint64_t>(begin + run - place, bytes.size());
    const Key key = splitter.KeyAt(server, begin / row);
    std::memcpy(static_cast<char*>(rows) + key * row + (place - begin), bytes.data(), count);
    bytes.remove_prefix(count);
    place += count;
  }
}

}  // namespace phalanx::ps::internal
