#include "src/object_store/pulls/pull_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/object_store/objects/subject.h"

namespace phalanx::object_store {
namespace {

constexpr absl::Duration kDialDelay = absl::Milliseconds(1);
// Between two looks at links, which visit every pull: many pulls share a wake-up.
constexpr absl::Duration kLookPause = absl::Milliseconds(10);

}  // namespace

PullRunner::PullRunner(const StoreOptions& options, Executor& executor, Turns& turns,
                       ObjectTable& table, PullManager& pulls, LocalCopies& copies,
                       GetRequests& gets, MemoryQueue& memory, PeerServer& peers,
                       ShardChannel& channel)
    : options_(options),
      executor_(executor),
      turns_(turns),
      table_(table),
      pulls_(pulls),
      copies_(copies),
      gets_(gets),
      memory_(memory),
      peers_(peers),
      channel_(channel),
      usage_(table, channel),
      prober_(options.self, options.connect_patience, executor, turns, channel) {}

// The data plane outlives the store: without this the pulls would continue for nothing.
PullRunner::~PullRunner() {
  for (const auto& [id, pull] : running_) data_plane_->CancelPull(pull.handle);
}

// ------------------------------------------------------------------------------------- effects

// Taken first: an effect can lead to more of them, which the next round applies.
bool PullRunner::ApplyEffects() {
  std::vector<PullEffect> effects = pulls_.TakeEffects();
  for (PullEffect& effect : effects) {
    std::visit([this](auto& e) { Apply(e); }, effect);
  }
  const bool applied = !effects.empty();
  pulls_.Reuse(std::move(effects));
  return applied;
}

void PullRunner::Apply(ReportToShard& effect) {
  channel_.Send(effect.id, std::move(effect.message));
}

void PullRunner::Apply(ReserveMemory& effect) {
  MemoryOwner owner{0, effect.id, effect.token, std::move(effect.target)};
  const uint64_t records = copies_.RecordBytes(owner.target.traits);
  memory_.Ask(owner.target.size_bytes, records, std::move(owner));
}

void PullRunner::Apply(ForgetMemory& effect) { memory_.ForgetToken(effect.token); }

void PullRunner::Apply(StartPull& effect) {
  Copy* copy = table_.Find(effect.id, effect.generation);
  PHALANX_CHECK(copy != nullptr, "a pull starts when its memory is here");
  // I/O loops write into the buffer until the outcome is here, even if the copy is dropped before.
  table_.Pin(copy);
  Running& running = running_[effect.number];
  running = {.id = effect.id,
             .slices = effect.source.slices,
             .copy = copy,
             .progress_at = executor_.Now(),
             .progress = std::make_shared<net::PullProgress>()};
  running.bytes_at_progress = Present(running);
  running.watch = PullWatch(executor_.Now(), running.bytes_at_progress);
  ++started_;
  bool missing = false;
  for (int slice = 0; slice < copy->buffer->layout().slices; ++slice) {
    const bool asked = (effect.source.slices >> slice & 1) != 0;
    missing =
        missing || (asked && copy->buffer->watermark(slice) < copy->buffer->layout().Size(slice));
  }
  // An earlier pull brought the last byte while the next one was being planned: no connection is
  // needed.
  if (!missing) {
    OnPullDone(effect.number, net::PullOutcome());
    return;
  }
  net::PullSpec spec{effect.source.sender, effect.source.address, effect.id,
                     effect.generation,    copy->buffer,          effect.source.slices,
                     running.progress};
  running.handle = data_plane_->StartPull(
      std::move(spec),
      turns_.Guarded([this, number = effect.number](const net::PullOutcome& outcome) {
        OnPullDone(number, outcome);
      }));
  if (due_.progress.infinite()) due_.progress = executor_.Now() + options_.progress_interval;
  // A little later, since the I/O loop begins to dial after this.
  due_.check = std::min(due_.check, executor_.Now() + options_.connect_patience + kDialDelay);
  due_.look = std::min(due_.look, running.watch.next_look());
}

void PullRunner::Apply(CancelPull& effect) {
  const auto it = running_.find(effect.number);
  if (it != running_.end()) data_plane_->CancelPull(it->second.handle);
}

uint64_t PullRunner::Present(const Running& running) {
  const net::TransferBuffer& buffer = *running.copy->buffer;
  uint64_t present = 0;
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    if ((running.slices >> slice & 1) != 0) present += buffer.watermark(slice);
  }
  return present;
}

void PullRunner::OnPullDone(uint64_t number, const net::PullOutcome& outcome) {
  const auto it = running_.find(number);
  if (it == running_.end()) return;
  Copy* copy = it->second.copy;
  const ObjectId id = it->second.id;
  running_.erase(it);
  if (!outcome.status.ok()) ++failed_;
  // Not that of a pull that was replaced.
  if (!outcome.status.ok() && !absl::IsCancelled(outcome.status)) {
    gets_.NoteFailure(id, outcome.status);
  }
  PullEnd end;
  end.number = number;
  end.outcome = outcome;
  end.complete = copy->buffer->complete();
  for (int slice = 0; slice < copy->buffer->layout().slices; ++slice) {
    end.watermarks.push_back(copy->buffer->watermark(slice));
  }
  // After the watermarks are read: a dropped copy ends with its last pin.
  table_.Unpin(copy);
  if (running_.empty()) due_.progress = due_.check = due_.look = Instant::Infinite();
  pulls_.OnPullDone(id, std::move(end));
}

void PullRunner::Apply(FillCopy& effect) {
  Copy* copy = table_.Find(effect.id, effect.generation);
  PHALANX_CHECK(copy != nullptr, "bytes are written when their memory is here");
  net::TransferBuffer& buffer = *copy->buffer;
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    // What streaming readers may have seen is not written again.
    const uint64_t from = buffer.watermark(slice);
    const absl::Span<char> into = buffer.slice(slice).subspan(from);
    if (into.empty()) continue;
    std::memcpy(into.data(), effect.bytes.data() + buffer.layout().Begin(slice) + from,
                into.size());
    buffer.Publish(slice, buffer.layout().Size(slice));
  }
}

void PullRunner::Apply(DropPartial& effect) {
  turns_.Touch(effect.id);
  Copy* copy = table_.Find(effect.id, effect.generation);
  if (copy != nullptr) copies_.Drop(copy, effect.why);
}

void PullRunner::Apply(CompleteCopy& effect) {
  turns_.Touch(effect.id);
  Copy* copy = table_.Find(effect.id, effect.generation);
  PHALANX_CHECK(copy != nullptr, "a copy is complete while it is in the table");
  copies_.Complete(copy);
  if (effect.keep) table_.MakePrimary(copy);
}

void PullRunner::Apply(EndGets& effect) { gets_.EndAll(effect.id, effect.why); }

v1::Progress::Pull& PullRunner::AddProgress(const PullManager::Running& pull,
                                            ProgressMessages& messages) {
  const Running& running = running_.at(pull.number);
  v1::Progress::Pull& out = *messages[channel_.ShardOf(pull.id)].mutable_progress()->add_pulls();
  SetSubject(pull.id, pull.generation, &out);
  out.set_plan_id(pull.plan);
  const net::TransferBuffer& buffer = *running.copy->buffer;
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    out.add_watermarks(buffer.watermark(slice));
  }
  // Relaxed: an I/O loop counts, and a value that is a moment old is good enough for the planner.
  out.set_starved_ns(running.progress->starved_ns.load(std::memory_order_relaxed));
  out.set_connecting(running.progress->ConnectionDue(options_.connect_patience) <=
                         executor_.Now() &&
                     !DefectActive(Defect::kSlowConnectNotReported));
  return out;
}

void PullRunner::Send(ProgressMessages messages) {
  for (auto& [shard, message] : messages) {
    message.mutable_progress()->set_used_bytes(table_.used_bytes());
    channel_.SendTo(shard, std::move(message));
  }
  // Every shard knows the memory in use now, so the next report of it can wait.
  if (messages.size() == static_cast<size_t>(channel_.num_shards()))
    usage_.OnReported(executor_.Now());
}

void PullRunner::SendProgress() {
  ProgressMessages messages;
  const Instant now = executor_.Now();
  for (const PullManager::Running& pull : pulls_.RunningPulls()) {
    v1::Progress::Pull& out = AddProgress(pull, messages);
    Running& running = running_.at(pull.number);
    const uint64_t present = Present(running);
    const double seconds = absl::ToDoubleSeconds(now - std::exchange(running.progress_at, now));
    const uint64_t bytes = present - std::exchange(running.bytes_at_progress, present);
    if (seconds > 0) out.set_bytes_per_second(static_cast<double>(bytes) / seconds);
    // A gap is counted when it ends, and this one has not ended.
    const absl::Duration quiet = running.watch.Quiet(now);
    out.set_starved_ns(out.starved_ns() + static_cast<uint64_t>(absl::ToInt64Nanoseconds(quiet)));
  }
  Send(std::move(messages));
  due_.progress = running_.empty() ? Instant::Infinite() : now + options_.progress_interval;
}

void PullRunner::SendEarlyProgress(Instant now) {
  absl::flat_hash_map<uint64_t, PullWatch::Report> news;
  Instant next = Instant::Infinite();
  for (auto& [number, running] : running_) {
    if (running.watch.next_look() <= now) {
      const PullWatch::Report report = running.watch.Look(
          now, {Present(running), running.progress->starved_ns.load(std::memory_order_relaxed)});
      if (report.window > absl::ZeroDuration()) news[number] = report;
    }
    next = std::min(next, running.watch.next_look());
  }
  due_.look = next.infinite() ? next : std::max(next, now + kLookPause);
  if (news.empty()) return;
  ProgressMessages messages;
  // In the order of ids, so that a simulation replays exactly.
  for (const PullManager::Running& pull : pulls_.RunningPulls()) {
    const auto found = news.find(pull.number);
    if (found == news.end()) continue;
    const PullWatch::Report& report = found->second;
    v1::Progress::Pull& out = AddProgress(pull, messages);
    out.set_bytes_per_second(report.bytes_per_second);
    out.set_window_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(report.window)));
    out.set_window_starved_ns(report.starved_ns);
    out.set_silent_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(report.silent)));
  }
  Send(std::move(messages));
}

void PullRunner::CheckConnections(Instant now) {
  due_.check = Instant::Infinite();
  bool late = false;
  for (const auto& [id, running] : running_) {
    const Instant due = running.progress->ConnectionDue(options_.connect_patience);
    late = late || due <= now;
    if (due > now) due_.check = std::min(due_.check, due);
  }
  if (late) SendProgress();
}

// ------------------------------------------------------------------------------ memory, fetches

void PullRunner::OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) {
  const PullTarget& target = owner.target;
  std::unique_ptr<Copy> copy = copies_.New(owner.object, target.generation, target.size_bytes,
                                           target.slices, target.traits, std::move(block));
  // The shard names only the adopted generation in an Assign or a Deliver.
  copy->standing = Standing::kAdopted;
  copies_.Add(std::move(copy));
  turns_.Touch(owner.object);
  pulls_.OnMemory(owner.object, owner.token, absl::OkStatus());
  // Receivers that were assigned to this relay before it had memory wait for this moment.
  peers_.OnBegun(owner.object);
}

void PullRunner::Fetch(const ObjectId& id, bool keep, PlanId order) {
  // A repeated order does not begin the minute again: a node that nothing feeds must refuse in the
  // end.
  if (!pulls_.Fetches(id)) fetches_.emplace_back(executor_.Now() + options_.fetch_patience, id);
  pulls_.Fetch(id, keep, order);
}

void PullRunner::ExpireFetches(Instant now) {
  while (!fetches_.empty() && fetches_.front().first <= now) {
    const ObjectId id = fetches_.front().second;
    fetches_.pop_front();
    // Bytes that still arrive, or memory that is waited for, are progress of a kind: another
    // minute.
    if (pulls_.Idle(id)) {
      pulls_.EndFetch(id);
    } else if (pulls_.Fetches(id)) {
      fetches_.emplace_back(now + options_.fetch_patience, id);
    }
  }
}

// ---------------------------------------------------------------------------------------- time

void PullRunner::ReportDue(Instant now) {
  if (due_.check <= now) CheckConnections(now);
  if (due_.look <= now) SendEarlyProgress(now);
  if (due_.progress <= now) SendProgress();
  prober_.Expire(now);
  usage_.OnTimer(now);
}

Instant PullRunner::NextDeadline() {
  // Fetches that have ended leave their entries behind; they must not wake the loop.
  while (!fetches_.empty() && !pulls_.Fetches(fetches_.front().second)) fetches_.pop_front();
  const Instant next = std::min(
      {due_.progress, due_.check, due_.look, usage_.NextDeadline(), prober_.NextDeadline()});
  return fetches_.empty() ? next : std::min(next, fetches_.front().first);
}

absl::Status PullRunner::CheckInvariants() const {
  if (running_.size() != pulls_.running()) {
    return absl::InternalError("the data plane runs another number of pulls than the manager");
  }
  for (const auto& [id, running] : running_) {
    if (running.copy->pins == 0) return absl::InternalError("a pull's copy is not pinned");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
