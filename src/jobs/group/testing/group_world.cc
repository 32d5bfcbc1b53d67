#include "src/jobs/group/testing/group_world.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace phalanx::jobs::testing {
namespace {

constexpr uint64_t kFactor = 1000;
// Links are lost in so many steps after members have begun to leave.
constexpr uint64_t kLossyLeaving = 3000;

uint64_t Element(uint64_t number, uint64_t j) { return kFactor * number + j % 100 + 1; }

// Memory whose bytes are overwritten when it is given back.
std::shared_ptr<GroupMemory> MakeMemory(uint64_t work, uint64_t scratch) {
  struct Block {
    explicit Block(uint64_t bytes) : bytes(bytes, '\xaa') {}
    ~Block() { std::fill(bytes.begin(), bytes.end(), '\xdd'); }
    std::vector<char> bytes;
  };
  auto block = std::make_shared<Block>(work + scratch);
  auto memory = std::make_shared<GroupMemory>();
  memory->work = absl::MakeSpan(block->bytes).subspan(0, work);
  memory->scratch = absl::MakeSpan(block->bytes).subspan(work, scratch);
  memory->owner = std::move(block);
  return memory;
}

}  // namespace

GroupWorld::GroupWorld(uint64_t seed, GroupWorldOptions options)
    : random_(seed), options_(options) {
  world_ = static_cast<int>(options.whole_hosts ? 5 + random_.Below(4) : 2 + random_.Below(7));
  const uint64_t nodes = options.whole_hosts ? 4 + random_.Below(3) : 2 + random_.Below(5);
  script_ = random_.Next();
  for (uint64_t i = 0; i < nodes; ++i) {
    nodes_.push_back({.key = {100 + i, 1}, .core = nullptr, .views = {}, .grants = {}});
    nodes_.back().host = static_cast<int>(i / 2);
  }
  if (options.retained) {
    kept_.retain =
        static_cast<uint32_t>(1 + random_.Below(2 * static_cast<uint64_t>(options.calls)));
    kept_.copies = static_cast<uint32_t>(1 + random_.Below(3));
    if (options.whole_hosts) kept_.retain = 2 * static_cast<uint32_t>(options.calls);
    if (options.whole_hosts) kept_.copies = 2;
  }
  if (options.until_released) {
    kept_.checkpoints.Make(random_, static_cast<uint64_t>(options.calls));
  }
  if (options.differs) {
    differs_.at = 1 + random_.Below(static_cast<uint64_t>(options.calls));
    differs_.rank = static_cast<int>(random_.Below(static_cast<uint64_t>(world_)));
  }
  view_.job = "train";
  view_.role = "worker";
  view_.world = world_;
  for (int rank = 0; rank < world_; ++rank) {
    view_.members.emplace_back().rank = rank;
    view_.members.back().task = absl::StrCat("worker", rank);
  }
  for (int rank = 0; rank < world_; ++rank) Revive(rank);
}

CallSpec GroupWorld::Spec(uint64_t number, int rank) const {
  Random random(script_ + number);
  CallSpec spec{.kind = static_cast<CallKind>(random.Below(kCallKinds))};
  spec.on_loss = options_.on_loss;
  constexpr uint64_t kSizes[] = {8, 400, 4000, 20000, 100000, 800000};
  if (spec.kind != CallKind::kBarrier) spec.bytes = kSizes[random.Below(6)];
  const bool per_rank = spec.kind == CallKind::kAllGather || spec.kind == CallKind::kAllToAll ||
                        spec.kind == CallKind::kReduceScatter;
  if (per_rank) spec.bytes = std::min<uint64_t>(spec.bytes, 100000);
  if (Folds(spec.kind)) spec.dtype = DType::kU64;
  if (spec.kind == CallKind::kAllReduce && random.Chance(0.3)) {
    spec.op = ReduceOp::kMean;
    spec.dtype = DType::kF64;
  }
  if (HasRoot(spec.kind)) spec.root = static_cast<uint32_t>(random.Below(uint64_t(world_)));
  spec.retain = RetainOf(number);
  spec.copies = spec.retain == 0 ? 0 : kept_.copies;
  if (spec.retain == kUntilReleased) spec.keep = kept_.checkpoints.Before(number);
  if (number == differs_.at && rank == differs_.rank) {
    const CallSpec right = spec;
    spec = {.kind = CallKind::kAllReduce, .dtype = DType::kU64, .bytes = 16};
    spec.on_loss = options_.on_loss;
    if (!options_.retained) return spec;
    // One that no node can make.
    spec.bytes = kMaxGroupBytes + 8;
    spec.retain = right.retain;
    spec.copies = right.copies;
    spec.keep = right.keep;
  }
  return spec;
}

std::shared_ptr<std::string> GroupWorld::Input(const CallSpec& spec, uint64_t number,
                                               int rank) const {
  if (spec.bytes > kMaxGroupBytes) return std::make_shared<std::string>();
  auto bytes = std::make_shared<std::string>(InputBytes(spec, world_, rank), '\0');
  for (uint64_t j = 0; 8 * j < bytes->size(); ++j) {
    const uint64_t value = (uint64_t{1} << rank) * Element(number, j);
    const double real = static_cast<double>(value);
    const void* from = spec.dtype == DType::kF64 ? static_cast<const void*>(&real) : &value;
    std::memcpy(bytes->data() + 8 * j, from, 8);
  }
  return bytes;
}

uint64_t GroupWorld::MaskOf(const CallSpec& spec, uint64_t number, int rank,
                            absl::string_view bytes, int members) {
  const uint64_t row = spec.bytes / 8;
  const bool rows = spec.kind == CallKind::kAllGather || spec.kind == CallKind::kAllToAll;
  uint64_t mask = 0;
  for (uint64_t j = 0; 8 * j < bytes.size(); ++j) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + 8 * j, 8);
    if (spec.dtype == DType::kF64) {
      double real = 0;
      std::memcpy(&real, &value, 8);
      value = static_cast<uint64_t>(real * members + 0.5);
    }
    // The index of the element in the input of the member that gave it.
    uint64_t index = rows ? j % row : j;
    if (spec.kind == CallKind::kAllToAll || spec.kind == CallKind::kReduceScatter) {
      index += static_cast<uint64_t>(rank) * row;
    }
    const uint64_t expected = Element(number, index);
    uint64_t got = value / expected;
    const bool whole = value % expected == 0 && got < (uint64_t{1} << world_);
    const uint64_t giver = rows ? j / row : 0;
    const bool place = !rows || got == 0 || got == uint64_t{1} << giver;
    if (j == 0 || rows) mask |= got;
    if (!whole || !place || (rows ? ((mask >> giver) & 1) != (got != 0) : got != mask)) {
      Violate(absl::StrCat("call ", number, " ", spec.ToString(), " at rank ", rank, ": element ",
                           j, " is ", value, ", no sum of inputs ", expected));
      return 0;
    }
  }
  return mask;
}

void GroupWorld::Publish() {
  shard_.changed = shard_.away;
  if (shard_.away) return;
  ++epoch_.counter;
  view_.epoch = epoch_;
  for (Node& node : nodes_) {
    bool has = false;
    for (const Member& member : view_.members) has |= member.live() && member.node == node.key;
    if (has && node.core != nullptr) node.views.push_back(view_);
  }
}

void GroupWorld::Revive(int rank) {
  std::vector<Node*> awake;
  for (Node& node : nodes_) {
    if (InTouch(node) && !node.session.fenced) awake.push_back(&node);
  }
  if (!awake.empty()) Join(rank, *awake[random_.Below(awake.size())]);
}

void GroupWorld::Join(int rank, Node& node) {
  Member& member = view_.members[static_cast<size_t>(rank)];
  const bool first = member.state == MemberState::kAbsent;
  member.life = first ? 0 : member.life + 1;
  member.state = MemberState::kLive;
  member.node = node.key;
  member.host = absl::StrCat("host", node.host);
  if (node.core == nullptr) {
    node.core = std::make_unique<GroupCore>(node.key, 7, "train/worker");
    node.results =
        std::make_unique<GroupResults>(node.key, 7, "train/worker", std::make_shared<KeptBytes>());
    node.vouched = std::make_unique<VouchedCalls>(node.key, 7);
    node.held = std::make_unique<HeldAnswers>(node.key, "train/worker");
    if (options_.sleeps || options_.cuts || options_.away) {
      node.session.leases.BeginSession(0, now_);
      Hear(node);
    }
    kept_.firsts.erase(node.key);
  }
  programs_.push_back({.rank = rank, .life = member.life, .called = {}});
  programs_.back().node = static_cast<int>(&node - nodes_.data());
  programs_.back().entered = first;
  node.core->AddMember(rank, member.life);
  Publish();
}

void GroupWorld::Replace(Program& program) {
  program.alive = false;
  program.replaced = true;
  Node& node = nodes_[static_cast<size_t>(program.node)];
  if (random_.Chance(0.6)) return Join(program.rank, node);
  Revive(program.rank);
  LeaveIfEmpty(node);
}

GroupWorld::Node* GroupWorld::NodeOf(const NodeKey& key) {
  for (Node& node : nodes_) {
    if (node.key == key && node.core != nullptr) return &node;
  }
  return nullptr;
}

GroupWorld::Program* GroupWorld::Live(int rank) {
  for (Program& program : programs_) {
    if (program.rank == rank && program.alive) return &program;
  }
  return nullptr;
}

GroupWorld::Program* GroupWorld::Last(int rank) {
  for (Program& program : programs_) {
    if (program.rank == rank && (program.alive || program.left)) return &program;
  }
  return nullptr;
}

void GroupWorld::Leave(Program& program) {
  program.leaving = true;
  program.leaves_by = now_ + kLeavePatience;
  Node& node = nodes_[static_cast<size_t>(program.node)];
  node.leavers.push_back(&program);
  node.results->EndMember(program.rank);
  node.held->EndMember(program.rank);
  node.core->SettleForLeave(program.rank, now_);
  Drain(node);
}

void GroupWorld::OnSettled(Node& node) {
  for (; node.settled > 0; --node.settled) {
    Program& program = *node.leavers.front();
    node.leavers.pop_front();
    if (now_ >= program.leaves_by) Violate("a member has waited in vain before it left");
    program.alive = false;
    program.left = true;
    view_.members[static_cast<size_t>(program.rank)].state = MemberState::kLeft;
  }
  Publish();
  LeaveIfEmpty(node);
}

// Each node hears of it at its own time, but before anything that the other sends later.
void GroupWorld::LoseLink(const NodeKey& one, const NodeKey& other) {
  Node* const nodes[] = {NodeOf(one), NodeOf(other)};
  if (nodes[0] == nullptr || nodes[1] == nullptr) return;
  nodes[0]->lost.insert(other);
  nodes[1]->lost.insert(one);
  links_.erase({one, other});
  links_.erase({other, one});
}

void GroupWorld::Kill(Program& program) {
  program.alive = false;
  ++counts_.deaths;
  ended_lives_.insert({program.rank, program.life});
  view_.members[static_cast<size_t>(program.rank)].state =
      random_.Chance(0.8) || options_.leaves ? MemberState::kDied : MemberState::kLeft;
  Publish();
  LeaveIfEmpty(nodes_[static_cast<size_t>(program.node)]);
}

void GroupWorld::Forget(Node& node) {
  if (node.core != nullptr) kept_.lost.emplace_back(kept_.steps, node.host);
  node.core.reset();
  node.results.reset();
  node.vouched.reset();
  node.held.reset();
  node.session = {};
  node.lost.clear();
  node.restarted.clear();
  node.views.clear();
  node.grants.clear();
  for (Program& program : programs_) {
    if (&nodes_[static_cast<size_t>(program.node)] == &node) program.fenced = false;
  }
}

void GroupWorld::LeaveIfEmpty(Node& node) {
  const int index = static_cast<int>(&node - nodes_.data());
  for (const Program& each : programs_) {
    if (each.alive && each.node == index) return;
  }
  Forget(node);
  for (Program& each : programs_) {
    if (each.node == index) each.outstanding = 0;
  }
  // Messages for the group that was left are of no use to one that is joined later.
  for (auto& [key, link] : links_) {
    if (key.second != node.key) continue;
    for (const Message& message : link.queue) {
      if (message.send.keep == nullptr) continue;
      link.unreleased.push_back(
          {message.send.keep, message.send.payload.size(), message.of_results});
    }
    link.queue.clear();
  }
}

void GroupWorld::KillNode(Node& node) {
  const int index = static_cast<int>(&node - nodes_.data());
  Forget(node);
  for (Program& program : programs_) {
    if (program.node == index) program.outstanding = 0;
    if (program.alive && program.node == index) Kill(program);
  }
  for (auto at = links_.begin(); at != links_.end();) {
    const bool its = at->first.first == node.key || at->first.second == node.key;
    at = its ? links_.erase(at) : std::next(at);
  }
  for (Node& other : nodes_) {
    if (options_.restarts && other.core != nullptr) other.restarted.insert(node.key);
  }
  ++node.key.incarnation;
}

// Copies a part of an input: of the oldest call, or of a later one.
void GroupWorld::StepFill(Program& program) {
  const size_t index = random_.Below(program.fills.size());
  Fill& fill = program.fills[index];
  const std::vector<ByteRange> rest = fill.there->Rest();
  ByteRange part = rest[random_.Below(rest.size())];
  const uint64_t bytes = random_.Chance(0.3) ? part.bytes : 1 + random_.Below(part.bytes);
  // Ranges that are not adjacent to others are few.
  const bool apart = fill.there->ranges().size() < kMaxByteRanges / 2;
  if (apart) part.from += random_.Below(part.bytes - bytes + 1);
  part.bytes = bytes;
  std::memcpy(fill.buffer->data() + part.from, fill.input->data() + part.from, part.bytes);
  if (!fill.there->Add(part).ok()) Violate("a part of an input is refused");
  if (fill.there->complete()) {
    program.fills.erase(program.fills.begin() + static_cast<ptrdiff_t>(index));
  }
  Node& node = nodes_[static_cast<size_t>(program.node)];
  node.core->Advance();
  Drain(node);
}

void GroupWorld::StepProgram(Program& program) {
  if (!(program.alive || program.fenced) || !program.entered || program.leaving) return;
  if (!program.fills.empty() && random_.Chance(0.7)) return StepFill(program);
  if (program.asks_progress || !program.missed.empty()) return Ask(program);
  // It goes on from the state that these lead to.
  if (options_.until_released && program.asking > 0) return;
  const bool over =
      program.next > static_cast<uint64_t>(options_.calls) && program.outstanding == 0;
  if (over && options_.leaves && leaving_steps_ > 0) return Leave(program);
  if (program.next > static_cast<uint64_t>(options_.calls) || program.outstanding >= 3) return;
  const uint64_t number = program.next++;
  GroupCallRequest request{.id = next_id_++, .spec = Spec(number, program.rank)};
  auto input = Input(request.spec, number, program.rank);
  if (options_.fills_late && !input->empty()) {
    const auto buffer = std::make_shared<std::string>(input->size(), '\xee');
    const auto there = std::make_shared<ByteRanges>(input->size());
    program.fills.push_back({std::exchange(input, buffer), buffer, there});
    request.filled = there;
  }
  if (request.spec.bytes > kMaxGroupBytes) {
    request.refused = absl::InvalidArgumentError("too many bytes");
  }
  request.input = *input;
  request.keep = std::move(input);
  ids_[request.id] = {.program = &program, .number = number, .input = request.input.data()};
  kept_.begun.try_emplace(number, kept_.steps);
  ++program.outstanding;
  Node& node = nodes_[static_cast<size_t>(program.node)];
  const absl::Status called = node.core->Call(program.rank, program.life, std::move(request), now_);
  if (!called.ok()) Violate(std::string(called.message()));
  Drain(node);
}

// What has ended comes first, as in the GroupService.
void GroupWorld::Drain(Node& node) {
  GiveHeld(node);
  for (bool any = true; any;) {
    std::vector<GroupEffect> effects = node.core->TakeEffects();
    for (const GroupEffect& effect : effects) {
      if (const auto* ended = std::get_if<EndedCall>(&effect)) TakeEnded(node, *ended);
      if (const auto* entered = std::get_if<GroupEntered>(&effect)) {
        node.results->OnEntered(*entered);
        const auto first = kept_.firsts.try_emplace(node.key, entered->first).first;
        first->second = std::min(first->second, entered->first);
      }
      if (const auto* release = std::get_if<GroupRelease>(&effect)) {
        node.results->OnRelease(*release);
      }
    }
    for (GroupEffect& effect : effects) OnEffect(node, effect, /*of_results=*/false);
    node.results->Advance(node.core->status());
    std::vector<GroupEffect> more = node.results->TakeEffects();
    for (GroupEffect& effect : more) OnEffect(node, effect, /*of_results=*/true);
    node.vouched->Advance(node.core->status(), node.held->last());
    for (GroupSend& send : node.vouched->TakeSends()) {
      GroupEffect effect = std::move(send);
      OnEffect(node, effect, /*of_results=*/false);
    }
    if (node.results->waits() || node.vouched->waits()) node.core->Agree();
    any = !effects.empty() || !more.empty() || !node.results->Knows(node.core->status());
  }
  GiveHeld(node);
}

void GroupWorld::OnEffect(Node& node, GroupEffect& effect, bool of_results) {
  if (auto* send = std::get_if<GroupSend>(&effect)) {
    if (NodeOf(send->to.key) == nullptr || node.lost.contains(send->to.key)) return;
    links_[{node.key, send->to.key}].queue.push_back(
        {.send = std::move(*send), .of_results = of_results, .place = {}, .keep = {}});
  } else if (auto* done = std::get_if<GroupDone>(&effect)) {
    Answer(node, *done);
  } else if (const auto* part = std::get_if<GroupPart>(&effect)) {
    if (part->memory == nullptr || Confirmed(node)) OnPart(*part);
  } else if (auto* entered = std::get_if<GroupEntered>(&effect)) {
    Program* program = Live(entered->rank);
    if (program == nullptr || program->life != entered->life) return;
    if (program->entered && entered->first != 1) Violate("a first life begins late");
    program->next = program->entered ? program->next : entered->first;
    NoteGroup(*program, entered->first);
    program->asks_progress = options_.until_released && !program->entered;
    program->agreement = {node.list, node.core->status().round};
    program->entered = true;
    if (options_.until_released) return;
    // Calls since a state that the member has kept elsewhere.
    if (!options_.retained) return;
    uint64_t number = options_.whole_hosts ? 0 : random_.Below(entered->first);
    while (++number < entered->first) program->missed.push_back(number);
  } else if (auto* allocate = std::get_if<GroupAllocate>(&effect)) {
    const bool refused = of_results && random_.Chance(0.1);
    kept_.refused += refused ? 1 : 0;
    node.grants.push_back(
        {allocate->ticket, of_results,
         refused ? nullptr : MakeMemory(allocate->work_bytes, allocate->scratch_bytes)});
  } else if (auto* give_up = std::get_if<GroupGiveUp>(&effect)) {
    Violate(absl::StrCat("a node gives up another one: ", give_up->why.message()));
  } else if (const auto* settled = std::get_if<GroupSettled>(&effect)) {
    node.settled += settled->members;
  } else if (std::holds_alternative<GroupRunMore>(effect)) {
    node.run_more = true;
  }
}

void GroupWorld::OnPart(const GroupPart& part) {
  Made& made = ids_.at(part.id);
  if (part.memory == nullptr) {
    const bool shows = !options_.sleeps && !options_.cuts && !options_.away;
    if (made.memory == nullptr && shows) Violate("parts are void that were not shown");
    made.memory.reset();
    ++counts_.voids;
    return;
  }
  if (made.memory == nullptr) {
    made.memory = part.memory;
    made.copy.assign(part.result.size(), '\xcc');
    made.copied = ByteRanges(part.result.size());
  }
  // A node has perhaps no room for two.
  if (made.memory != part.memory) Violate("the parts of a result are in two memories");
  ++counts_.parts;
  if (made.copied.Has(part.part)) Violate("a part of a result is shown twice");
  if (!made.copied.Add(part.part).ok()) return;
  std::memcpy(made.copy.data() + part.part.from, part.result.data() + part.part.from,
              part.part.bytes);
}

std::string GroupWorld::ResultOf(Made& made, const GroupDone& done) {
  // The member reads the memory of which it knows parts.
  if (done.in_input && made.memory != nullptr) Violate("a result in the input was shown before");
  if (made.memory == nullptr) return std::string(done.result);
  if (made.memory != done.memory) Violate("a result is in other memory than its parts");
  for (const ByteRange& range : made.copied.Rest()) {
    std::memcpy(made.copy.data() + range.from, done.result.data() + range.from, range.bytes);
  }
  return std::move(made.copy);
}

void GroupWorld::OnDone(const GroupDone& done) {
  Made& made = ids_.at(done.id);
  const auto [program, number, input] = std::tie(made.program, made.number, made.input);
  const std::string copy = done.status.ok() ? ResultOf(made, done) : std::string();
  made.memory.reset();
  if (program->alive || program->replaced || program->fenced) --program->outstanding;
  if (!program->alive && !program->fenced) return;
  ++counts_.answers;
  if (done.in_input && done.result.data() != input) {
    return Violate(absl::StrCat("call ", number, " at rank ", program->rank,
                                ": the result is said to be in the input, and is not"));
  }
  if (done.number != 0 && done.number != number) {
    return Violate(
        absl::StrCat("rank ", program->rank, " made call ", number, ", answered as ", done.number));
  }
  Result result{program->rank, program->life, done.status, 0, done.members};
  result.late = program->fenced;
  result.group = program->group;
  const CallSpec spec = Spec(number, program->rank);
  const uint64_t bytes = done.status.ok() ? ResultBytes(spec, world_, program->rank) : 0;
  if (done.result.size() != bytes && !done.in_input) {
    Violate(absl::StrCat("call ", number, " ", spec.ToString(), " at rank ", program->rank,
                         ": a result of ", done.result.size(), " bytes, not ", bytes));
  } else if (bytes > 0) {
    result.mask = MaskOf(spec, number, program->rank, copy, done.members);
  }
  results_[number].push_back(std::move(result));
}

bool GroupWorld::StepLink(const std::pair<NodeKey, NodeKey>& key, Link& link) {
  Node* to = NodeOf(key.second);
  Node* from = NodeOf(key.first);
  if ((to != nullptr && Sleeps(*to)) || (from != nullptr && Sleeps(*from))) return false;
  if (random_.Chance(0.3) && !link.unreleased.empty()) {
    const Unreleased released = std::move(link.unreleased.front());
    link.unreleased.erase(link.unreleased.begin());
    if (from != nullptr) {
      if (released.of_results) {
        from->results->OnReleased(key.second, released.bytes);
      } else {
        from->core->OnReleased(key.second, released.bytes);
      }
      Drain(*from);
    }
    return true;
  }
  if (link.queue.empty() || to == nullptr || to->lost.contains(key.first))
    return !link.unreleased.empty();
  Message& message = link.queue.front();
  const absl::string_view payload =
      message.send.keep != nullptr ? message.send.payload : message.send.copied;
  const GroupHeader header = *DecodeHeader(message.send.header);
  if (!message.landing) {
    message.landing = true;
    if (!payload.empty() && message.of_results) {
      message.place = to->results->PlaceFor(key.first, header, payload.size());
      message.keep = to->results->LandingFrom(key.first);
    } else if (!payload.empty()) {
      const auto place = to->core->PlaceFor(key.first, header, payload.size());
      if (!place.ok()) Violate(std::string(place.status().message()));
      if (place.ok()) message.place = *place;
      message.keep = to->core->LandingFrom(key.first);
    }
    if (!message.place.empty()) {
      std::memcpy(message.place.data(), payload.data(),
                  std::min(message.place.size(), payload.size() / 2));
    }
    if (random_.Chance(0.3)) return true;
  }
  const Message taken = std::move(link.queue.front());
  link.queue.pop_front();
  absl::string_view arrived = taken.send.keep != nullptr ? taken.send.payload : taken.send.copied;
  if (!taken.place.empty()) {
    std::memcpy(taken.place.data(), arrived.data(), arrived.size());
    arrived = {taken.place.data(), taken.place.size()};
  }
  if (taken.send.keep != nullptr) {
    link.unreleased.push_back({taken.send.keep, taken.send.payload.size(), taken.of_results});
  }
  if (VouchedCalls::Handles(header.kind)) {
    to->vouched->OnMessage(key.first, header);
  } else if (taken.of_results) {
    to->results->OnMessage(key.first, header, arrived);
  } else {
    to->core->OnMessage(key.first, header, arrived, now_);
  }
  Drain(*to);
  return true;
}

void GroupWorld::StepNode(Node& node) {
  if (node.core == nullptr || Sleeps(node)) return;
  const bool leased = options_.sleeps || options_.cuts || options_.away;
  if (leased && random_.Chance(0.2)) return Hear(node);
  if (node.settled > 0) return OnSettled(node);
  if (!node.lost.empty() && random_.Chance(0.3)) {
    const NodeKey peer = *node.lost.begin();
    node.lost.erase(peer);
    const absl::Status why = absl::UnavailableError("given up");
    node.core->OnLost(peer, why);
    node.results->OnLost(peer);
    node.vouched->OnLost(peer, why);
  } else if (!node.restarted.empty() && random_.Chance(0.5)) {
    const NodeKey peer = *node.restarted.begin();
    node.restarted.erase(peer);
    const absl::Status why = absl::AbortedError("has restarted");
    node.core->OnLost(peer, why);
    node.results->OnLost(peer);
    node.vouched->OnLost(peer, why);
  } else if (!node.views.empty() && InTouch(node) && random_.Chance(0.4)) {
    node.view = std::move(node.views.front());
    node.views.pop_front();
    const auto list = node.core->OnView(node.view, now_);
    node.results->OnList(list);
    node.vouched->OnList(list);
    node.held->OnView(node.view);
    node.list = list->digest;
  } else if (!node.grants.empty() && random_.Chance(0.5)) {
    Node::Grant grant = std::move(node.grants.front());
    node.grants.erase(node.grants.begin());
    if (grant.memory == nullptr) {
      node.results->OnMemory(grant.ticket, absl::ResourceExhaustedError("no room"));
    } else if (grant.of_results) {
      node.results->OnMemory(grant.ticket, std::move(grant.memory));
    } else {
      node.core->OnMemory(grant.ticket, std::move(grant.memory));
    }
  } else if (std::exchange(node.run_more, false)) {
    node.core->Advance();
  } else if (node.core->NextTick() <= now_) {
    node.core->Tick(now_);
  }
  Drain(node);
}

void GroupWorld::StepOnce(bool faults) {
  ++kept_.steps;
  now_ = now_ + absl::Microseconds(static_cast<int64_t>(random_.Below(2000)));
  StepNode(nodes_[random_.Below(nodes_.size())]);
  std::vector<std::pair<NodeKey, NodeKey>> busy;
  for (const auto& [key, link] : links_) {
    if (!link.queue.empty() || !link.unreleased.empty()) busy.push_back(key);
  }
  for (size_t i = 0; i < 2 && !busy.empty(); ++i) {
    const auto key = busy[random_.Below(busy.size())];
    const auto at = links_.find(key);
    if (at != links_.end()) StepLink(key, at->second);
  }
  Program* program = Live(static_cast<int>(random_.Below(static_cast<uint64_t>(world_))));
  // Its node does not hear of it.
  if (program != nullptr && Sleeps(nodes_[static_cast<size_t>(program->node)])) program = nullptr;
  if (program != nullptr && random_.Chance(0.3)) StepProgram(*program);
  if (shard_.away && now_ >= shard_.back) Return();
  if (options_.cuts) StepFenced();
  const auto lose = [&] {
    if (!options_.losses || busy.empty() || !random_.Chance(0.01)) return;
    const auto key = busy[random_.Below(busy.size())];
    LoseLink(key.first, key.second);
  };
  if (!faults) {
    if (options_.leaves && leaving_steps_ > 0 && leaving_steps_ <= kLossyLeaving) lose();
    return;
  }
  if (options_.sleeps) StepSleep();
  if (options_.cuts) StepCut();
  if (options_.away) StepAway();
  if (!shard_.away) FenceSilent();
  const bool deaths = options_.deaths && !options_.whole_hosts;
  if (deaths && random_.Chance(0.004) && program != nullptr) Kill(*program);
  lose();
  const bool replaces = options_.replaced && !shard_.away;
  if (replaces && program != nullptr && program->alive && random_.Chance(0.004)) {
    Replace(*program);
  }
  if (deaths && random_.Chance(0.001)) KillNode(nodes_[random_.Below(nodes_.size())]);
  if (options_.retained && random_.Chance(options_.whole_hosts ? 0.001 : 0.0005)) {
    const int host = nodes_[random_.Below(nodes_.size())].host;
    for (Node& node : nodes_) {
      if (node.host == host) KillNode(node);
    }
  }
  if (random_.Chance(0.02)) {
    const int rank = static_cast<int>(random_.Below(static_cast<uint64_t>(world_)));
    if (Live(rank) == nullptr) Revive(rank);
  }
}

// A next life that joins when the others have begun to leave may be alone. If calls wait for it,
// they stay once they know of it, unless they lose a link before they hear what it has still to
// make.
bool GroupWorld::MayLeave() {
  for (const Node& node : nodes_) {
    if (node.core != nullptr && !node.views.empty()) return false;
  }
  const bool stay = options_.on_loss == OnLoss::kWait && !options_.losses;
  for (const Program& program : programs_) {
    if (program.alive && !program.entered && !stay) return false;
  }
  return true;
}

bool GroupWorld::Finished() {
  for (const Program& program : programs_) {
    if (program.replaced && program.outstanding > 0) return false;
    if (!program.alive) continue;
    if (program.next <= static_cast<uint64_t>(options_.calls) || program.outstanding > 0) {
      return false;
    }
    if (options_.leaves) return false;
  }
  return true;
}

std::string GroupWorld::Describe() {
  std::string text;
  for (const Program& program : programs_) {
    if (!program.alive && !program.replaced) continue;
    absl::StrAppend(&text, " rank ", program.rank, ".", program.life, " on ", program.node, ": ",
                    program.next - 1, " made, ", program.outstanding, " open;");
  }
  for (const Node& node : nodes_) {
    if (node.core == nullptr) continue;
    const GroupStatus status = node.core->status();
    absl::StrAppend(&text, " node ended ", status.ended, " settled ", status.settled, " running ",
                    status.running, " early ", status.early_messages, ";");
  }
  return text;
}

void GroupWorld::CheckCall(uint64_t number, const std::vector<Result>& results) {
  const CallSpec spec = Spec(number, -1);
  const bool per_part = spec.kind == CallKind::kAllToAll || spec.kind == CallKind::kReduceScatter;
  uint64_t mask = 0;
  bool failed = false, worked = false;
  for (const Result& result : results) {
    if (!Last(result.rank) || Last(result.rank)->life != result.life) continue;
    if (!result.kept) (result.status.ok() ? worked : failed) = true;
    if (!result.status.ok()) {
      const bool lost = result.status.code() == absl::StatusCode::kUnavailable &&
                        (options_.on_loss == OnLoss::kFail ||
                         (options_.on_loss == OnLoss::kExclude && HasRoot(spec.kind)));
      // A next life's result is lost if the call ended everywhere while it made the call again.
      const bool root = spec.kind == CallKind::kReduce && Root(spec, result);
      const bool own = (per_part || root) && result.life > 0 &&
                       absl::StrContains(result.status.message(), "an earlier life of rank");
      const bool parts = result.status.code() == absl::StatusCode::kAborted &&
                         (options_.on_loss != OnLoss::kWait || own) &&
                         (per_part || options_.on_loss == OnLoss::kFail || HasRoot(spec.kind));
      const bool gone = absl::IsAborted(result.status) &&
                        absl::StrContains(result.status.message(), "nodes that had its result");
      const bool differs =
          number == differs_.at && result.status.code() == absl::StatusCode::kInvalidArgument;
      const bool link =
          options_.losses && (absl::IsUnavailable(result.status) || absl::IsAborted(result.status));
      if (lost || parts || gone || differs || link) continue;
      Violate(absl::StrCat("call ", number, " ", spec.ToString(), " failed at rank ", result.rank,
                           ": ", result.status.ToString()));
    }
    if (result.mask == 0) continue;
    if (mask != 0 && result.mask != mask) {
      Violate(absl::StrCat("call ", number, " ", spec.ToString(), ": rank ", result.rank,
                           " has members ", result.mask, ", others ", mask));
    }
    mask = result.mask;
    const uint64_t all = (uint64_t{1} << world_) - 1;
    if (result.kept) continue;
    const uint64_t need = options_.on_loss != OnLoss::kExclude ? all : uint64_t{1} << result.rank;
    if (spec.kind != CallKind::kBroadcast && (result.mask & need) != need) {
      Violate(absl::StrCat("call ", number, " ", spec.ToString(), " at rank ", result.rank,
                           " has only members ", result.mask));
    }
  }
  // The root of a broadcast can have sent it before it hears of the error.
  const bool waits = SameForAll(spec.kind) && spec.kind != CallKind::kBroadcast;
  if (number == differs_.at && worked && waits) {
    Violate(absl::StrCat("call ", number, " worked although the members' calls differ"));
  }
  // Members that lived throughout agree on whether the call failed, unless only some get a result.
  if (failed && worked && waits && options_.on_loss == OnLoss::kWait && !options_.losses) {
    Violate(absl::StrCat("call ", number, " ", spec.ToString(), " failed for some only"));
  }
}

bool GroupWorld::Root(const CallSpec& spec, const Result& result) {
  return result.rank == static_cast<int>(spec.root);
}

void GroupWorld::Violate(std::string text) {
  if (violations_.size() < 5) violations_.push_back(std::move(text));
}

std::vector<std::string> GroupWorld::Run() {
  const bool faults =
      options_.deaths || options_.losses || options_.sleeps || options_.cuts || options_.away;
  const uint64_t fault_steps = faults ? 200 + random_.Below(3000) : 0;
  for (uint64_t step = 0; step < fault_steps && violations_.empty(); ++step) StepOnce(true);
  if (!shard_.back.infinite()) WakeAll();
  for (int rank = 0; rank < world_; ++rank) {
    const bool back = options_.on_loss != OnLoss::kExclude || random_.Chance(0.5);
    if (Live(rank) == nullptr && back) Revive(rank);
  }
  for (uint64_t step = 0; step < 300000 && violations_.empty() && !Finished(); ++step) {
    if (leaving_steps_ > 0 || MayLeave()) ++leaving_steps_;
    StepOnce(false);
  }
  if (violations_.empty() && !Finished()) Violate(absl::StrCat("calls do not end:", Describe()));
  for (const auto& [number, results] : results_) {
    CheckCall(number, results);
    CheckLate(number, results);
  }
  if (violations_.empty()) CheckKept();
  return violations_;
}

}  // namespace phalanx::jobs::testing
