#include "src/object_store/memory/memfd_memory.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/threads/mutex.h"
#include "src/object_store/memory/extent_allocator.h"

namespace phalanx::object_store {
namespace {

// A warm file is taken for sizes down to 4/5 of its own.
bool Fits(uint64_t file_bytes, uint64_t bytes) {
  return file_bytes >= bytes && file_bytes - bytes <= bytes / 4;
}

// The records of each small object lie in the own memory of the process, which is not reserved:
// after so many extents it is asked whether the machine has that much left. They and their metadata
// take 5 MiB at most, a third of it.
constexpr int kExtentsBetweenLooks = 1024;
// Warm files together.
constexpr uint64_t kMaxPooledBytes = uint64_t{1} << 30;
constexpr size_t kMaxPooledFiles = 64;
constexpr uint64_t kMaxSegmentBytes = uint64_t{64} << 20;
// The pages of a segment are made so many bytes at a time: those of 64 MiB together take 30 to 80
// ms, for which requests would wait.
constexpr uint64_t kSegmentStepBytes = uint64_t{2} << 20;
constexpr uint64_t kLeastForRecords = uint64_t{16} << 20;

// Runs tasks in order on a thread of its own, which ends with it. Tasks that have not begun then
// are destroyed.
class Helper {
 public:
  Helper() : thread_([this] { Run(); }) {}
  ~Helper() {
    {
      MutexLock lock(mu_);
      stopping_.store(true);
      wake_.Signal();
    }
    thread_.join();
  }

  void Do(Task task) {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
    wake_.Signal();
  }
  // A long task asks whether it is still worth it.
  bool stopping() const { return stopping_.load(); }

 private:
  void Run() {
    while (true) {
      Task task;
      {
        MutexLock lock(mu_);
        while (tasks_.empty() && !stopping()) wake_.Wait(mu_);
        if (stopping()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  Mutex mu_;
  CondVar wake_;
  std::atomic<bool> stopping_{false};
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace

// On the control loop, but for OnLoop. Shared with the blocks, which may end on any thread and
// after the memory.
class MemfdMemory::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Executor& control, MemfdMemoryOptions options)
      : options_(std::move(options)),
        next_segment_bytes_(options_.first_segment_bytes),
        control_(&control),
        helper_(std::make_unique<Helper>()) {}

  void Close();
  void Allocate(uint64_t bytes, Allocated done);
  std::shared_ptr<MemoryBlock> TryAllocate(uint64_t bytes);
  void Trim(uint64_t keep_bytes);
  // Frees the extents that no viewer sees any more. Returns true if there was one.
  bool FreeUnseen();
  SharedMemoryStats stats() const;

  // Runs the task on the control loop: now if this is it, else posted. After Close the task is
  // destroyed. Any thread.
  void OnLoop(Task task);

  // The last reference of a block is gone.
  void ReturnFile(std::shared_ptr<MemfdFile> file, uint64_t id, bool condemned);
  void ReturnExtent(const ExtentAllocator::Extent& extent, std::vector<ViewerId> viewers);
  void Condemned(uint64_t bytes) { stats_.condemned_bytes += bytes; }

 private:
  class Block;
  class FileBlock;
  class ExtentBlock;
  struct WarmFile {
    std::shared_ptr<MemfdFile> file;
    uint64_t id;
  };
  struct Waiting {
    uint64_t bytes;
    Allocated done;
  };
  // Returned, and not free before all of these are gone.
  struct SeenExtent {
    ExtentAllocator::Extent extent;
    std::vector<ViewerId> viewers;
  };
  using FileResult = absl::StatusOr<std::shared_ptr<MemfdFile>>;

  void Reply(Allocated done, absl::StatusOr<std::shared_ptr<MemoryBlock>> result);
  void MakeFile(uint64_t bytes, uint64_t ready, MemfdFile::Writers writers,
                absl::AnyInvocable<void(FileResult)> done);
  // What the machine can give, for the helper thread, which owns it.
  MemfdFile::Available AvailableToHelper();
  void AllocateFile(uint64_t bytes, Allocated done, bool again);
  std::shared_ptr<MemoryBlock> NewFileBlock(std::shared_ptr<MemfdFile> file, uint64_t id,
                                            uint64_t bytes);
  std::shared_ptr<MemoryBlock> NewExtentBlock(uint64_t bytes);
  // ResourceExhausted when another small object would bring the process near its end.
  absl::Status RoomForRecord();
  // More pages are made before the last ones are used, so that no request waits for zeroed pages.
  // The next pages of a segment cost no descriptor and no capacity, so they are made earlier.
  bool RunsLow() const {
    return extents_.free_bytes() < next_segment_bytes_ / (growing_ != 0 ? 4 : 8);
  }
  // Makes the next pages of the segment that has not all of them, or else a new segment.
  void MakeExtents();
  void GrowSegment();
  // As large as there is room for. If requests wait, never smaller than the first segment.
  uint64_t SegmentBytes() const;
  void OnSegment(FileResult result);
  // The last pages were made, or not.
  void OnExtents(const absl::Status& made);
  void FailWaiting(const absl::Status& why);
  // Of blocks and of segments, used or not; without warm files.
  uint64_t HeldBytes() const { return live_file_bytes_ + segment_bytes_; }
  uint64_t Room() const { return options_.max_bytes - std::min(options_.max_bytes, HeldBytes()); }
  // Warm files give way to `bytes` more.
  void MakeRoom(uint64_t bytes) { Trim(Room() - std::min(Room(), bytes)); }
  void RemoveSegment(ExtentAllocator::SegmentId id);
  void Unmap(std::shared_ptr<MemfdFile> file);
  // As Unmap, for a file that no client reads any more: its pages do not wait for clients to unmap
  // it.
  void GiveUp(std::shared_ptr<MemfdFile> file);

  const MemfdMemoryOptions options_;
  SharedMemoryStats stats_;
  uint64_t live_files_ = 0;  // of blocks
  uint64_t live_file_bytes_ = 0;
  uint64_t segment_bytes_ = 0;
  uint64_t next_id_ = 1;
  std::vector<WarmFile> warm_;  // oldest first
  ExtentAllocator extents_;
  std::map<ExtentAllocator::SegmentId, std::shared_ptr<MemfdFile>> segments_;
  // The newest segment and its bytes that have pages, until all have. Its number is 0 if there is
  // none.
  ExtentAllocator::SegmentId growing_ = 0;
  uint64_t grown_bytes_ = 0;
  std::map<ExtentAllocator::SegmentId, std::vector<SeenExtent>> seen_;
  std::deque<Waiting> waiting_;  // for a segment
  uint64_t next_segment_bytes_;
  int extents_before_look_ = kExtentsBetweenLooks;
  bool making_extents_ = false;
  bool extents_failed_ = false;  // the last ones, and they were not tried again since

  Mutex mu_;
  Executor* control_ ABSL_GUARDED_BY(mu_);  // null after Close

  std::unique_ptr<Helper> helper_;
};

// ------------------------------------------------------------------------------------ blocks

class MemfdMemory::Core::Block : public MemoryBlock {
 public:
  Block(std::shared_ptr<Core> core, std::shared_ptr<MemfdFile> file, uint64_t id, uint64_t offset,
        uint64_t bytes)
      : core_(std::move(core)), file_(std::move(file)), id_(id), offset_(offset), bytes_(bytes) {}

  absl::Span<char> bytes() const override {
    return absl::MakeSpan(file_->data() + offset_, bytes_);
  }
  int read_only_fd() const override { return file_->read_only_fd(); }
  int writable_fd() const override { return file_->writable_fd(); }
  int OpenFor(ViewerId viewer) override { return file_->OpenFor(viewer); }
  uint64_t offset() const override { return offset_; }
  uint64_t file_bytes() const override { return file_->bytes(); }
  uint64_t file_id() const override { return id_; }

 protected:
  const std::shared_ptr<Core> core_;
  std::shared_ptr<MemfdFile> file_;
  const uint64_t id_;
  const uint64_t offset_;
  const uint64_t bytes_;
};

class MemfdMemory::Core::FileBlock final : public Block {
 public:
  using Block::Block;
  ~FileBlock() override {
    // The last reference can end on an I/O loop, and the pool belongs to the control loop.
    core_->OnLoop(
        [core = core_, file = std::move(file_), id = id_, condemned = condemned_]() mutable {
          core->ReturnFile(std::move(file), id, condemned);
        });
  }
  void Condemn(ViewerId) override {
    if (!std::exchange(condemned_, true)) core_->Condemned(file_->bytes());
  }

 private:
  bool condemned_ = false;
};

class MemfdMemory::Core::ExtentBlock final : public Block {
 public:
  ExtentBlock(std::shared_ptr<Core> core, std::shared_ptr<MemfdFile> file,
              const ExtentAllocator::Extent& extent, uint64_t bytes)
      : Block(std::move(core), std::move(file), extent.segment, extent.offset, bytes),
        extent_(extent) {}
  ~ExtentBlock() override {
    core_->OnLoop([core = core_, extent = extent_, viewers = std::move(viewers_)]() mutable {
      core->ReturnExtent(extent, std::move(viewers));
    });
  }
  void Condemn(ViewerId viewer) override {
    if (viewers_.empty()) core_->Condemned(extent_.bytes);
    // An object that outlives many of its readers remembers only those that may still look.
    std::erase_if(viewers_, [&](ViewerId v) { return v == viewer || !file_->SeenBy(v); });
    viewers_.push_back(viewer);
  }

 private:
  const ExtentAllocator::Extent extent_;
  // The viewers that can see the extent without a pin.
  std::vector<ViewerId> viewers_;
};

// --------------------------------------------------------------------------------- allocation

void MemfdMemory::Core::Allocate(uint64_t bytes, Allocated done) {
  if (bytes >= kOwnFileBytes) {
    AllocateFile(bytes, std::move(done), /*again=*/true);
    return;
  }
  if (auto block = TryAllocate(bytes)) return Reply(std::move(done), std::move(block));
  if (const absl::Status room = RoomForRecord(); !room.ok()) return Reply(std::move(done), room);
  waiting_.push_back({bytes, std::move(done)});
  MakeExtents();
}

std::shared_ptr<MemoryBlock> MemfdMemory::Core::TryAllocate(uint64_t bytes) {
  // Requests that wait for a segment come first, even if this one would find an extent. The records
  // of small objects only are looked at: a large one's is nothing beside its file.
  if (bytes >= kOwnFileBytes || !waiting_.empty() || !RoomForRecord().ok()) return nullptr;
  std::shared_ptr<MemoryBlock> block = NewExtentBlock(bytes);
  if (block != nullptr && RunsLow()) MakeExtents();
  return block;
}

absl::Status MemfdMemory::Core::RoomForRecord() {
  if (!options_.available || extents_before_look_-- > 0) return absl::OkStatus();
  // While the machine is short every allocation looks again: memory may come back at any time.
  extents_before_look_ = 0;
  const uint64_t left = options_.available();
  if (left < kLeastForRecords && stats_.pooled_bytes == 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the machine has only ", left, " bytes left, too few for the records of objects: ",
        "delete objects, give the node a smaller --capacity, or the container more memory"));
  }
  // Warm files are given up first.
  if (left < kLeastForRecords) Trim(0);
  extents_before_look_ = kExtentsBetweenLooks;
  return absl::OkStatus();
}

void MemfdMemory::Core::Reply(Allocated done, absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
  // Not under the lock: a loop that has shut down destroys the block at once.
  Executor* control = nullptr;
  {
    MutexLock lock(mu_);
    control = control_;
  }
  // The memory was closed: requests that are under way are dropped without a call.
  if (control == nullptr) return;
  control->Post(
      [done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

void MemfdMemory::Core::AllocateFile(uint64_t bytes, Allocated done, bool again) {
  // The smallest warm file that fits, so that a larger one stays for a larger object.
  auto best = warm_.end();
  for (auto it = warm_.begin(); it != warm_.end(); ++it) {
    const uint64_t size = it->file->bytes();
    if (Fits(size, bytes) && (best == warm_.end() || size < best->file->bytes())) best = it;
  }
  if (best != warm_.end()) {
    const WarmFile warm = std::move(*best);
    warm_.erase(best);
    stats_.pooled_bytes -= warm.file->bytes();
    Reply(std::move(done), NewFileBlock(warm.file, warm.id, bytes));
    return;
  }
  // Objects before the pool: warm files must not push the node beyond its capacity.
  MakeRoom(bytes);
  MakeFile(bytes, bytes, MemfdFile::Writers::kAnyHolder,
           [this, bytes, again, done = std::move(done)](FileResult file) mutable {
             if (!file.ok() && again && stats_.pooled_bytes > 0) {
               // Warm files are given up for this one.
               Trim(0);
               AllocateFile(bytes, std::move(done), /*again=*/false);
             } else if (!file.ok()) {
               done(file.status());
             } else {
               done(NewFileBlock(*std::move(file), next_id_++, bytes));
             }
           });
}

MemfdFile::Available MemfdMemory::Core::AvailableToHelper() {
  return [self = shared_from_this(), helper = helper_.get()] {
    // The reservation of a very large file ends between two steps when the node stops.
    if (helper->stopping()) return uint64_t{0};
    return self->options_.available ? self->options_.available() : UINT64_MAX;
  };
}

void MemfdMemory::Core::MakeFile(uint64_t bytes, uint64_t ready, MemfdFile::Writers writers,
                                 absl::AnyInvocable<void(FileResult)> done) {
  helper_->Do([self = shared_from_this(), available = AvailableToHelper(), bytes, ready, writers,
               done = std::move(done)]() mutable {
    FileResult result = MemfdFile::Create(bytes, ready, writers, available);
    Core& core = *self;
    core.OnLoop([self = std::move(self), done = std::move(done),
                 result = std::move(result)]() mutable { done(std::move(result)); });
  });
}

std::shared_ptr<MemoryBlock> MemfdMemory::Core::NewFileBlock(std::shared_ptr<MemfdFile> file,
                                                             uint64_t id, uint64_t bytes) {
  stats_.allocated_bytes += file->bytes();
  live_file_bytes_ += file->bytes();
  ++live_files_;
  return std::make_shared<FileBlock>(shared_from_this(), std::move(file), id, 0, bytes);
}

std::shared_ptr<MemoryBlock> MemfdMemory::Core::NewExtentBlock(uint64_t bytes) {
  std::optional<ExtentAllocator::Extent> extent = extents_.Allocate(bytes);
  // Asked only now: each viewer costs a system call.
  if (!extent && FreeUnseen()) extent = extents_.Allocate(bytes);
  if (!extent) return nullptr;
  stats_.allocated_bytes += extent->bytes;
  return std::make_shared<ExtentBlock>(shared_from_this(), segments_.at(extent->segment), *extent,
                                       bytes);
}

void MemfdMemory::Core::MakeExtents() {
  if (making_extents_) return;
  // Extents that ended clients have left may be enough, and cost no new pages.
  FreeUnseen();
  if (waiting_.empty() && !RunsLow()) return;
  if (growing_ != 0) return GrowSegment();
  const uint64_t bytes = SegmentBytes();
  if (bytes == 0) return;
  making_extents_ = true;
  MakeRoom(bytes);
  MakeFile(bytes, std::min(bytes, kSegmentStepBytes), MemfdFile::Writers::kThisProcess,
           [this](FileResult result) { OnSegment(std::move(result)); });
}

void MemfdMemory::Core::GrowSegment() {
  making_extents_ = true;
  const std::shared_ptr<MemfdFile>& file = segments_.at(growing_);
  const uint64_t end = std::min(file->bytes(), grown_bytes_ + kSegmentStepBytes);
  helper_->Do([self = shared_from_this(), available = AvailableToHelper(), file, id = growing_,
               begin = grown_bytes_, end]() mutable {
    const absl::Status made = file->MakePages(begin, end, available);
    Core& core = *self;
    core.OnLoop([self = std::move(self), file = std::move(file), id, begin, end, made] {
      // The segment can have been removed in the meantime.
      if (made.ok() && self->growing_ == id) {
        self->extents_.Grow(id, end - begin);
        self->grown_bytes_ = end;
        if (end == file->bytes()) self->growing_ = 0;
      }
      self->OnExtents(made);
    });
  });
}

uint64_t MemfdMemory::Core::SegmentBytes() const {
  const uint64_t least = options_.first_segment_bytes;
  // The second attempt takes the least that helps, because the machine refused the first.
  if (extents_failed_) return least;
  const uint64_t room = Room() / kOwnFileBytes * kOwnFileBytes;
  if (room < least && waiting_.empty()) return 0;
  return std::min(next_segment_bytes_, std::max(room, least));
}

void MemfdMemory::Core::FailWaiting(const absl::Status& why) {
  for (Waiting& waiting : std::exchange(waiting_, {})) Reply(std::move(waiting.done), why);
}

void MemfdMemory::Core::OnSegment(FileResult result) {
  if (result.ok()) {
    const uint64_t bytes = (*result)->bytes();
    const uint64_t ready = std::min(bytes, kSegmentStepBytes);
    // Doubled each time: few descriptors for many objects, and few pages for a small node.
    next_segment_bytes_ = std::min(2 * next_segment_bytes_, kMaxSegmentBytes);
    segment_bytes_ += bytes;
    const ExtentAllocator::SegmentId id = next_id_++;
    extents_.AddSegment(id, ready);
    segments_.emplace(id, *std::move(result));
    if (ready < bytes) {
      growing_ = id;
      grown_bytes_ = ready;
    }
  }
  OnExtents(result.status());
}

void MemfdMemory::Core::OnExtents(const absl::Status& made) {
  making_extents_ = false;
  const bool failed_before = std::exchange(extents_failed_, false);
  if (!made.ok() && failed_before) {
    FailWaiting(made);
  } else if (!made.ok() && !waiting_.empty()) {
    // Warm files are given up, and a smaller segment, or the same step, is tried.
    Trim(0);
    extents_failed_ = true;
  }
  while (!waiting_.empty()) {
    std::shared_ptr<MemoryBlock> block = NewExtentBlock(waiting_.front().bytes);
    if (block == nullptr) return MakeExtents();
    Reply(std::move(waiting_.front().done), std::move(block));
    waiting_.pop_front();
  }
  // After a failure, and for a new segment, the next request tries.
  if (made.ok() && growing_ != 0 && RunsLow()) MakeExtents();
}

// ------------------------------------------------------------------------------------ release

void MemfdMemory::Core::OnLoop(Task task) {
  {
    MutexLock lock(mu_);
    if (control_ == nullptr) return;
    if (!control_->InLoop()) {
      // Close can run first: then nothing is left that the task could change.
      control_->Post([self = shared_from_this(), task = std::move(task)]() mutable {
        if (self->helper_ != nullptr) task();
      });
      return;
    }
  }
  // Not under the lock: the task may end the last block, which calls OnLoop again.
  task();
}

void MemfdMemory::Core::ReturnFile(std::shared_ptr<MemfdFile> file, uint64_t id, bool condemned) {
  const uint64_t bytes = file->bytes();
  stats_.allocated_bytes -= bytes;
  live_file_bytes_ -= bytes;
  --live_files_;
  // A process may still see the pages, so no other object gets them; the system frees them with the
  // last mapping.
  if (condemned) {
    stats_.condemned_bytes -= bytes;
    Unmap(std::move(file));
    return;
  }
  warm_.push_back({std::move(file), id});
  stats_.pooled_bytes += bytes;
  Trim(std::min(kMaxPooledBytes, Room()));
  // Each file is a descriptor, of which clients and peers need some.
  while (warm_.size() > kMaxPooledFiles) {
    stats_.pooled_bytes -= warm_.front().file->bytes();
    GiveUp(std::move(warm_.front().file));
    warm_.erase(warm_.begin());
  }
}

void MemfdMemory::Core::ReturnExtent(const ExtentAllocator::Extent& extent,
                                     std::vector<ViewerId> viewers) {
  stats_.allocated_bytes -= extent.bytes;
  const bool condemned = !viewers.empty();
  const MemfdFile& segment = *segments_.at(extent.segment);
  // Processes that have ended meanwhile need not be waited for.
  std::erase_if(viewers, [&segment](ViewerId viewer) { return !segment.SeenBy(viewer); });
  if (!viewers.empty()) {
    extents_.GiveUp(extent);
    seen_[extent.segment].push_back({extent, std::move(viewers)});
  } else {
    if (condemned) stats_.condemned_bytes -= extent.bytes;
    extents_.Free(extent);
  }
  if (extents_.used_bytes(extent.segment) > 0) return;
  // One empty segment stays for the next small object, unless a process may still see a part of it.
  if (extents_.given_up_bytes(extent.segment) > 0 || segments_.size() > 1) {
    RemoveSegment(extent.segment);
  }
}

bool MemfdMemory::Core::FreeUnseen() {
  bool freed = false;
  for (auto& [id, extents] : seen_) {
    const MemfdFile& segment = *segments_.at(id);
    // One system call for each viewer of a segment, however many extents it saw.
    absl::flat_hash_map<ViewerId, bool> sees;
    const auto is_gone = [&](ViewerId viewer) {
      const auto [it, first] = sees.try_emplace(viewer);
      if (first) it->second = segment.SeenBy(viewer);
      return !it->second;
    };
    std::erase_if(extents, [&](SeenExtent& seen) {
      std::erase_if(seen.viewers, is_gone);
      if (!seen.viewers.empty()) return false;
      stats_.condemned_bytes -= seen.extent.bytes;
      extents_.TakeBack(seen.extent);
      return freed = true;
    });
  }
  std::erase_if(seen_, [](const auto& segment) { return segment.second.empty(); });
  return freed;
}

void MemfdMemory::Core::RemoveSegment(ExtentAllocator::SegmentId id) {
  extents_.RemoveSegment(id);
  if (const auto seen = seen_.find(id); seen != seen_.end()) {
    for (const SeenExtent& extent : seen->second) stats_.condemned_bytes -= extent.extent.bytes;
    seen_.erase(seen);
  }
  const auto it = segments_.find(id);
  if (growing_ == id) growing_ = 0;
  segment_bytes_ -= it->second->bytes();
  Unmap(std::move(it->second));
  segments_.erase(it);
}

// A large mapping takes its time.
void MemfdMemory::Core::Unmap(std::shared_ptr<MemfdFile> file) {
  helper_->Do([file = std::move(file)] {});
}

void MemfdMemory::Core::GiveUp(std::shared_ptr<MemfdFile> file) {
  helper_->Do([file = std::move(file)] { file->GiveUpPages(); });
}

void MemfdMemory::Core::Trim(uint64_t keep_bytes) {
  size_t dropped = 0;
  while (stats_.pooled_bytes > keep_bytes) {
    stats_.pooled_bytes -= warm_[dropped].file->bytes();
    GiveUp(std::move(warm_[dropped++].file));
  }
  warm_.erase(warm_.begin(), warm_.begin() + static_cast<ptrdiff_t>(dropped));
  // Empty segments go only when everything must: the next small object would have to wait for a new
  // one.
  if (keep_bytes > 0) return;
  for (auto it = segments_.begin(); it != segments_.end();) {
    const auto segment = it++;
    if (extents_.used_bytes(segment->first) == 0) RemoveSegment(segment->first);
  }
}

SharedMemoryStats MemfdMemory::Core::stats() const {
  SharedMemoryStats stats = stats_;
  stats.pooled_bytes += extents_.free_bytes();
  stats.files = segments_.size() + warm_.size() + live_files_;
  return stats;
}

void MemfdMemory::Core::Close() {
  {
    MutexLock lock(mu_);
    control_ = nullptr;
  }
  // After the lock was given back: the helper's last task may be waiting for it in OnLoop.
  helper_.reset();
  waiting_.clear();
  seen_.clear();
  warm_.clear();
  segments_.clear();
  growing_ = 0;
}

// ------------------------------------------------------------------------------ public methods

MemfdMemory::MemfdMemory(Executor& control, MemfdMemoryOptions options)
    : core_(std::make_shared<Core>(control, std::move(options))) {}

MemfdMemory::~MemfdMemory() { core_->Close(); }

void MemfdMemory::Allocate(uint64_t bytes, Allocated done) {
  core_->Allocate(bytes, std::move(done));
}

std::shared_ptr<MemoryBlock> MemfdMemory::TryAllocate(uint64_t bytes) {
  return core_->TryAllocate(bytes);
}

void MemfdMemory::Reconsider() { core_->FreeUnseen(); }

void MemfdMemory::Trim(uint64_t keep_bytes) { core_->Trim(keep_bytes); }

SharedMemoryStats MemfdMemory::stats() const { return core_->stats(); }

}  // namespace phalanx::object_store
