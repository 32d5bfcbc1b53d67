// Tables of a parameter server: what a program says of one. phalanx/ps.h has the servers and
// workers, docs/parameter-server.md the meaning of the consistencies.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_TABLE_H_
#define PHALANX_PS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/elements.h"

namespace phalanx::ps {

using Key = uint64_t;

// The greatest number of elements of a row, and the greatest size of the name of a table.
inline constexpr uint32_t kMaxWidth = 65536;
inline constexpr size_t kMaxTableNameSize = 255;
// The greatest number of servers of a job.
inline constexpr int kMaxServers = 4096;

// When a pull is answered, and what it can have. The clock of a worker counts its calls of Clock; m
// is the least clock of all workers. A worker pulls at its clock c. The numbers appear on the wire.
enum class Sync : uint8_t {
  kBsp = 0,  // at c == m: the state before all pushes of clock m and later ones
  kSsp = 1,  // at c - m <= staleness: all pushes of clocks < m, its own, and any others that came
  kAsp = 2,  // at once: its own pushes, and any others that came
};

// Which server has a key. The numbers appear on the wire.
enum class Split : uint8_t {
  kRange = 0,   // equal ranges of the keys; those of a sparse table are all 64-bit numbers
  kHash = 1,    // by a hash of the key
  kBlocks = 2,  // runs of `block` keys in turn
  kOwn = 3,     // a sparse table: as a function of the workers' program says (Slicer in ps.h)
};

// What a push does to the values of its keys; g is what is pushed, w a value. With kBsp the pushes
// of a clock are summed in the order of workers first, and the update is made once for each key
// (kAssign: the last push stays). Else it is made for each push, as it comes. The numbers appear on
// the wire.
enum class Update : uint8_t {
  kAssign = 0,    // w = g
  kSum = 1,       // w += g
  kSgd = 2,       // w -= rate * g
  kMomentum = 3,  // v = momentum * v + g; w -= rate * v
  kAdagrad = 4,   // s += g * g; w -= rate * g / (sqrt(s) + epsilon)
  kFtrl = 5,      // FTRL-Proximal per coordinate (McMahan et al., KDD 2013, algorithm 1)
  kOwn = 6,       // a function of the server's program
};

// What a row has before its first push: the same in every life of a server. The numbers appear on
// the wire.
enum class Init : uint8_t {
  kZeros = 0,
  kUniform = 1,  // in [-scale, scale), by seed and key
  kNormal = 2,   // of mean 0 and standard deviation `scale`, by seed and key
};

// What a table does when a worker dies. The numbers appear on the wire.
enum class OnLoss : uint8_t {
  kWait = 0,  // waits for its next life
  // Goes on without it. With kBsp its pushes of clocks that it had not ended are dropped, and those
  // by object of clocks that have not turned.
  kDrop = 1,
  kFail = 2,  // all calls for the table fail
};

// The least limit with TableSpec::snapshot_bytes 0.
inline constexpr uint64_t kLeastSnapshotBytes = uint64_t{256} << 20;

struct TableSpec {
  std::string name;    // 1 to 255 bytes of UTF-8
  uint64_t keys = 0;   // a dense table: its keys are 0 to keys - 1; 0: sparse, with any keys, whose
                       // rows are made by the first push
  uint32_t width = 1;  // elements of a row; with `lengths`, the most of a row
  // Sparse tables: each row has a length of its own, 0 to `width` elements. It begins with none. A
  // push that is longer than its row makes the row as long, by elements that are 0. The update is
  // made for the elements that are pushed: others do not move, also with kMomentum. With kAssign
  // the row gets the length of the push.
  bool lengths = false;
  DType dtype = DType::kF32;  // f32, f64, i32 or i64
  DType wire = DType::kF32;   // pushes and pulls travel so: dtype itself, or f16 or bf16 for f32
  Sync sync = Sync::kBsp;
  uint32_t staleness = 0;  // with kSsp
  Split split = Split::kRange;
  uint64_t block = 0;  // with kBlocks: keys of a block
  Update update = Update::kSum;
  // Of the updates that have them; those of floats only.
  double rate = 0.1;  // kSgd, kMomentum, kAdagrad; alpha of kFtrl
  double momentum = 0.9;
  double epsilon = 1e-8;
  double beta = 1.0;  // kFtrl, as l1 and l2
  double l1 = 0.0, l2 = 0.0;
  Init init = Init::kZeros;  // not zeros: floats only, and not with kFtrl
  double scale = 0.0;
  uint64_t seed = 0;
  OnLoss on_loss = OnLoss::kWait;
  // After so many clocks of all workers each part of the table is written as an object with copies
  // on `copies` other hosts (on all, if these are fewer). 0: never, and a server that dies loses
  // its part. With kAsp and no calls of Clock, after snapshot_bytes of pushes; a worker's later
  // life begins with AnyTable::SkipPushed then.
  uint32_t snapshot_every = 10;
  uint32_t copies = 1;
  // A worker keeps what it has pushed since the last snapshot: in its memory, or what travels as
  // objects (AnyTable::PushDense) in that of its node. When that is more bytes than this, the
  // servers make a snapshot out of turn, and pushes wait for it. But for what is pushed in a clock
  // from its first object on, until the worker has ended it. 0, with kAsp: 256 MiB, or as much as
  // the parts have if that is more: each server makes a snapshot after so many bytes of pushes of
  // all workers, and a worker keeps its share of them.
  uint64_t snapshot_bytes = uint64_t{256} << 20;

  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

namespace internal {
struct RowData {
  std::vector<uint32_t> lengths = {};  // elements of each row
  std::vector<uint64_t> starts = {};   // of each row, in elements
  std::vector<char> bytes = {};
};
}  // namespace internal

// What was pulled of a table with TableSpec::lengths. A value; copies share the rows. Any thread.
class PulledRows {
 public:
  PulledRows() = default;
  explicit PulledRows(internal::RowData data)
      : data_(std::make_shared<internal::RowData>(std::move(data))) {}

  // Elements of each row, in the order of the keys. Valid as long as a copy, as all views.
  absl::Span<const uint32_t> lengths() const { return data_->lengths; }
  // All rows, one behind the other. REQUIRES, as for row: T is the table's dtype.
  template <typename T>
  absl::Span<const T> values() const {
    return {reinterpret_cast<const T*>(data_->bytes.data()), data_->bytes.size() / sizeof(T)};
  }
  // The row of the i-th key. REQUIRES: i < lengths().size().
  template <typename T>
  absl::Span<const T> row(size_t i) const {
    return values<T>().subspan(data_->starts[i], data_->lengths[i]);
  }

 private:
  std::shared_ptr<const internal::RowData> data_ = std::make_shared<internal::RowData>();
};

// Returns OK, or InvalidArgument that names the table and the field.
absl::Status Check(const TableSpec& spec);

absl::string_view SyncName(Sync sync);        // "bsp", "ssp", "asp"
absl::string_view SplitName(Split split);     // "range", "hash", "blocks", "own"
absl::string_view UpdateName(Update update);  // "assign", "sum", "sgd", "momentum", "adagrad",
                                              // "ftrl", "own"

}  // namespace phalanx::ps

#endif  // PHALANX_PS_TABLE_H_
