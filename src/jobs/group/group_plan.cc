#include "src/jobs/group/group_plan.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <utility>

#include "src/collectives/kernels/kernels.h"
#include "src/common/check.h"

namespace phalanx::jobs {
namespace {

// Bytes [begin, end).
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// Finds the steps after which their bytes of work do not change, from the last step on.
void MarkFinal(GroupPlan& plan) {
  // What later steps write: ranges by their begin, which do not overlap.
  std::map<uint64_t, uint64_t> later;
  for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
    if (step->kind == StepKind::kSend || step->memory != StepMemory::kWork) continue;
    Range range{step->at, step->at + step->bytes};
    auto at = later.upper_bound(range.begin);
    if (at != later.begin() && std::prev(at)->second > range.begin) --at;
    step->final = at == later.end() || at->first >= range.end;
    while (at != later.end() && at->first < range.end) {
      range = {std::min(range.begin, at->first), std::max(range.end, at->second)};
      at = later.erase(at);
    }
    later[range.begin] = range.end;
  }
}

// Appends the steps of one node. The nodes of trees, rings and rows are numbered from the root.
class Planner {
 public:
  Planner(const GroupShape& shape, const CallSpec& spec, int node)
      : shape_(shape), spec_(spec), node_(node), n_(shape.nodes()) {
    // A vector that is folded is cut between elements only.
    grain_ = Folds(spec.kind) ? ElementSize(spec.dtype) : 1;
    in_place_ = shape.ranks[static_cast<size_t>(node)].size() == 1 &&
                !(Folds(spec.kind) && collectives::NeedsPrepare(spec.dtype, spec.op));
    absent_.assign(static_cast<size_t>(shape.world), true);
    for (const std::vector<int>& ranks : shape.ranks) {
      for (const int rank : ranks) absent_[static_cast<size_t>(rank)] = false;
    }
    plan_.receives.resize(static_cast<size_t>(n_));
  }

  GroupPlan Make(bool acknowledged) {
    switch (spec_.kind) {
      case CallKind::kAllReduce:
        AllReduce(spec_.bytes);
        break;
      case CallKind::kReduce:
        Reduce(acknowledged);
        break;
      case CallKind::kBroadcast:
        Broadcast(acknowledged);
        break;
      case CallKind::kAllGather:
        AllGather();
        break;
      case CallKind::kReduceScatter:
        ReduceScatter();
        break;
      case CallKind::kAllToAll:
        AllToAll();
        break;
      case CallKind::kBarrier:
        Signal(/*down=*/false);
        Signal(/*down=*/true);
        break;
    }
    plan_.proves_all_began = ProvesAllBegan(acknowledged);
    MarkFinal(plan_);
    return std::move(plan_);
  }

 private:
  // ---- steps
  void Append(Step step) {
    // A message without bytes is a signal. A local step without bytes does nothing.
    if (step.kind != StepKind::kSend && step.kind != StepKind::kReceive && step.bytes == 0) return;
    const uint64_t begin = step.kind == StepKind::kSend ? step.from : step.at;
    if (step.memory == StepMemory::kWork) {
      plan_.work_bytes = std::max(plan_.work_bytes, begin + step.bytes);
    }
    plan_.steps.push_back(step);
  }
  void Local(StepKind kind, Range range, uint64_t scratch = 0) {
    Append({.kind = kind, .at = range.begin, .from = scratch, .bytes = range.size()});
  }
  void Send(int peer, Range range, StepMemory memory = StepMemory::kWork, uint16_t slot = 0,
            bool copy = false) {
    Append({.kind = StepKind::kSend,
            .memory = memory,
            .copy = copy,
            .slot = slot,
            .peer = peer,
            .from = range.begin,
            .bytes = range.size()});
  }
  void Receive(int peer, Range range, StepMemory memory = StepMemory::kWork) {
    // Append keeps every Receive, so this is the index of the step below.
    plan_.receives[static_cast<size_t>(peer)].push_back(static_cast<uint32_t>(plan_.steps.size()));
    if (memory == StepMemory::kScratch) {
      plan_.scratch_bytes = std::max(plan_.scratch_bytes, range.end);
    }
    Append({.kind = StepKind::kReceive,
            .memory = memory,
            .peer = peer,
            .at = range.begin,
            .bytes = range.size()});
  }
  // In pieces, because one step is taken in one turn.
  void Clear(Range range) {
    for (const Range& piece : Pieces(range)) Local(StepKind::kClear, piece);
  }
  // Sends this node's own bytes, which are not in work before.
  void SendOwn(int peer, Range range) {
    if (in_place_) return Send(peer, range, StepMemory::kInput);
    Local(StepKind::kOwn, range);
    Send(peer, range);
  }

  // ---- ranges
  // The i-th of `parts` parts, cut between elements.
  Range Part(Range whole, int i, int parts) const {
    const uint64_t elements = whole.size() / grain_;
    const auto at = [&](int k) {
      const auto part = static_cast<unsigned __int128>(elements) * static_cast<unsigned>(k) /
                        static_cast<unsigned>(parts);
      return whole.begin + static_cast<uint64_t>(part) * grain_;
    };
    return {at(i), i + 1 == parts ? whole.end : at(i + 1)};
  }
  std::vector<Range> Pieces(Range whole) const {
    uint64_t piece =
        std::clamp(whole.size() / kTargetPieces, kMinPieceBytes, kMaxPieceBytes) / 64 * 64;
    // A short row of pieces costs more for its messages than its pipeline saves.
    if (!fine_) piece = std::clamp(whole.size() / 2, kMaxPieceBytes / 2, kMaxPieceBytes) / 64 * 64;
    std::vector<Range> pieces;
    for (uint64_t at = whole.begin; at < whole.end; at += piece) {
      pieces.push_back({at, std::min(at + piece, whole.end)});
    }
    return pieces;
  }
  Range RankRange(int rank) const {
    const uint64_t begin = static_cast<uint64_t>(rank) * spec_.bytes;
    return {begin, begin + spec_.bytes};
  }
  // The ranges of a node's members in a vector with a part for each rank; adjacent ones are one.
  std::vector<Range> NodeRanges(int node) const {
    std::vector<Range> ranges;
    for (const int rank : shape_.ranks[static_cast<size_t>(node)]) {
      const Range range = RankRange(rank);
      if (!ranges.empty() && ranges.back().end == range.begin) {
        ranges.back().end = range.end;
      } else {
        ranges.push_back(range);
      }
    }
    return ranges;
  }
  std::vector<Range> PiecesOf(const std::vector<Range>& ranges) const {
    std::vector<Range> pieces;
    for (const Range& range : ranges) {
      for (const Range& piece : Pieces(range)) pieces.push_back(piece);
    }
    return pieces;
  }

  // ---- trees: node v of a tree has the children v * width + 1 ... v * width + width
  int Up(int v, int root) const { return (v + root) % n_; }
  int Below(int root) const { return (node_ - root + n_) % n_; }
  std::vector<int> Children(int v, int width) const {
    std::vector<int> children;
    for (int64_t c = int64_t{v} * width + 1; c <= int64_t{v} * width + width && c < n_; ++c) {
      children.push_back(static_cast<int>(c));
    }
    return children;
  }
  void FoldUp(int root, int width, Range whole, bool finish) {
    const int v = Below(root);
    const std::vector<int> children = Children(v, width);
    fine_ = true;
    for (const Range& piece : Pieces(whole)) {
      // A leaf sends its own bytes, straight from the input if they need no fold.
      if (children.empty() && v != 0) {
        SendOwn(Up((v - 1) / width, root), piece);
        continue;
      }
      if (children.empty()) Local(StepKind::kOwn, piece);
      for (size_t c = 0; c < children.size(); ++c) {
        // The first child's bytes land in work, where this node's own are added to them. Each other
        // child has its own part of scratch, since all of them can send at once.
        const uint64_t base = c == 0 ? 0 : (c - 1) * whole.end;
        const Range at{base + piece.begin, base + piece.end};
        Receive(Up(children[c], root), at, c == 0 ? StepMemory::kWork : StepMemory::kScratch);
        Local(c == 0 ? StepKind::kAddOwn : StepKind::kAdd, piece, at.begin);
      }
      if (v != 0) Send(Up((v - 1) / width, root), piece);
      if (v == 0 && finish) Local(StepKind::kFinish, piece);
    }
  }
  // `from`: where the root has the bytes.
  void SendDown(int root, int width, Range whole, StepMemory from, uint16_t slot,
                bool take = false) {
    const int v = Below(root);
    fine_ = true;
    for (const Range& piece : Pieces(whole)) {
      if (take) {
        Append({.kind = StepKind::kTake,
                .slot = slot,
                .at = piece.begin,
                .from = piece.begin,
                .bytes = piece.size()});
      }
      if (v != 0) Receive(Up((v - 1) / width, root), piece);
      for (const int child : Children(v, width)) {
        Send(Up(child, root), piece, v == 0 ? from : StepMemory::kWork, v == 0 ? slot : 0);
      }
    }
  }
  // Messages without bytes, up or down the wide tree whose root is node `root`.
  void Signal(bool down, int root = 0) {
    const int v = Below(root);
    const int parent = v == 0 ? -1 : Up((v - 1) / kWideTree, root);
    if (down && parent >= 0) Receive(parent, {});
    for (const int child : Children(v, kWideTree)) {
      if (down) {
        Send(Up(child, root), {});
      } else {
        Receive(Up(child, root), {});
      }
    }
    if (!down && parent >= 0) Send(parent, {});
  }
  static int WidthFor(uint64_t bytes) {
    if (bytes <= kTinyBytes) return kWideTree;
    return bytes <= kSmallBytes ? 2 : 1;
  }
  bool IsTiny(uint64_t bytes) const { return bytes <= kTinyBytes; }

  // ---- AllReduce
  void AllReduce(uint64_t bytes) {
    const Range whole{0, bytes};
    const bool power = std::has_single_bit(static_cast<unsigned>(n_));
    const uint64_t ring = power ? kRingSliceBytes : kRingSliceBytesOddNodes;
    if (n_ == 1) {
      for (const Range& piece : Pieces(whole)) {
        Local(StepKind::kOwn, piece);
        Local(StepKind::kFinish, piece);
      }
    } else if (IsTiny(bytes)) {
      FoldUp(0, kWideTree, whole, /*finish=*/true);
      SendDown(0, kWideTree, whole, StepMemory::kWork, 0);
    } else if (bytes <= kSmallBytes) {
      Doubling(whole);
    } else if (bytes / static_cast<uint64_t>(n_) < ring) {
      HalvingDoubling(whole);
    } else {
      RingAllReduce(whole);
    }
  }

  // Nodes beyond a power of two give their bytes to a neighbour before, and get the result from it.
  //
  //   nodes    0 1 | 2 3 | 4 | 5        n = 6, 2 nodes beyond 4
  //   active   0   | 1   | 2 | 3
  struct Row {
    int count = 1;    // active nodes: a power of two
    int extra = 0;    // nodes beyond it
    int active = -1;  // this node's place, or -1
    bool paired = false;
    int Node(int place) const { return place < extra ? 2 * place : place + extra; }
  };
  Row MakeRow() const {
    Row row;
    row.count = static_cast<int>(std::bit_floor(static_cast<unsigned>(n_)));
    row.extra = n_ - row.count;
    row.paired = node_ < 2 * row.extra;
    if (!row.paired) {
      row.active = node_ - row.extra;
    } else if (node_ % 2 == 0) {
      row.active = node_ / 2;
    }
    return row;
  }
  // Returns whether this node is active.
  bool EnterRow(const Row& row, Range whole) {
    if (!row.paired) return true;
    for (const Range& piece : Pieces(whole)) {
      if (row.active < 0) {
        SendOwn(node_ - 1, piece);
      } else {
        Receive(node_ + 1, piece);
        Local(StepKind::kAddOwn, piece);
      }
    }
    return row.active >= 0;
  }
  void LeaveRow(const Row& row, Range whole) {
    if (!row.paired) return;
    for (const Range& piece : Pieces(whole)) {
      if (row.active < 0) {
        Receive(node_ - 1, piece);
      } else {
        Send(node_ + 1, piece);
      }
    }
  }
  void Doubling(Range whole) {
    const Row row = MakeRow();
    if (EnterRow(row, whole)) {
      // A paired node has added its own bytes in EnterRow.
      if (!row.paired) Local(StepKind::kOwn, whole);
      uint64_t base = 0;
      for (int distance = 1; distance < row.count; distance *= 2, base += whole.size()) {
        const int peer = row.Node(row.active ^ distance);
        // The fold below changes the bytes while the link may still need them.
        Send(peer, whole, StepMemory::kWork, 0, /*copy=*/true);
        // Each round has its own place, because the peer of a later round can be ahead of this
        // node.
        Receive(peer, {base, base + whole.size()}, StepMemory::kScratch);
        Local(StepKind::kAdd, whole, base);
      }
      Local(StepKind::kFinish, whole);
    }
    LeaveRow(row, whole);
  }
  void HalvingDoubling(Range whole) {
    const Row row = MakeRow();
    if (EnterRow(row, whole)) {
      struct Round {
        int peer;
        Range kept;
        Range given;
      };
      std::vector<Round> rounds;
      Range mine = whole;
      uint64_t base = 0;
      for (int distance = row.count / 2; distance > 0; distance /= 2) {
        const bool low = (row.active & distance) == 0;
        const Round round{row.Node(row.active ^ distance), Part(mine, low ? 0 : 1, 2),
                          Part(mine, low ? 1 : 0, 2)};
        // In the first round work is empty: own bytes leave as they are, and the peer's land in
        // work.
        const bool first = rounds.empty() && !row.paired;
        for (const Range& piece : Pieces(round.given)) {
          first ? SendOwn(round.peer, piece) : Send(round.peer, piece);
        }
        for (const Range& piece : Pieces(round.kept)) {
          if (first) {
            Receive(round.peer, piece);
            Local(StepKind::kAddOwn, piece);
            continue;
          }
          const uint64_t at = base + piece.begin - round.kept.begin;
          Receive(round.peer, {at, at + piece.size()}, StepMemory::kScratch);
          Local(StepKind::kAdd, piece, at);
        }
        if (!first) base += round.kept.size();
        mine = round.kept;
        rounds.push_back(round);
      }
      // Each active node has one complete slice now. The rounds in reverse order give it to all.
      Local(StepKind::kFinish, mine);
      for (size_t i = rounds.size(); i-- > 0;) {
        const Round& round = rounds[i];
        for (const Range& piece : Pieces(round.kept)) Send(round.peer, piece);
        for (const Range& piece : Pieces(round.given)) Receive(round.peer, piece);
      }
    }
    LeaveRow(row, whole);
  }

  // ---- rings: node v sends to v + 1
  int Right() const { return (node_ + 1) % n_; }
  int Left() const { return (node_ + n_ - 1) % n_; }
  int Wrapped(int chunk) const { return ((chunk % n_) + n_) % n_; }
  // Folds all chunks around the ring; this node ends with chunk `first` + 1.
  template <typename PiecesFor>
  void RingFold(int first, bool send_last, PiecesFor pieces_for) {
    for (const Range& piece : pieces_for(Wrapped(first))) SendOwn(Right(), piece);
    for (int s = 0; s < n_ - 1; ++s) {
      // The chunk of the last step has passed all nodes, so it is complete here.
      const bool last = s == n_ - 2;
      for (const Range& piece : pieces_for(Wrapped(first - s - 1))) {
        Receive(Left(), piece);
        Local(StepKind::kAddOwn, piece);
        if (last) Local(StepKind::kFinish, piece);
        if (!last || send_last) Send(Right(), piece);
      }
    }
  }
  void RingAllReduce(Range whole) {
    const auto pieces_for = [&](int chunk) { return Pieces(Part(whole, chunk, n_)); };
    RingFold(node_, /*send_last=*/true, pieces_for);
    // The fold ends with chunk node_ + 1 here, and so with chunk node_ at the left neighbor.
    RingSpread(/*first=*/node_, pieces_for);
  }
  // Receives all chunks from `first` down, and sends on all but the last.
  template <typename PiecesFor>
  void RingSpread(int first, PiecesFor pieces_for) {
    for (int s = 0; s < n_ - 1; ++s) {
      for (const Range& piece : pieces_for(Wrapped(first - s))) {
        Receive(Left(), piece);
        if (s < n_ - 2) Send(Right(), piece);
      }
    }
  }

  // ---- the other kinds
  void Reduce(bool acknowledged) {
    const int root = shape_.NodeOf(static_cast<int>(spec_.root));
    FoldUp(root, WidthFor(spec_.bytes), {0, spec_.bytes}, /*finish=*/true);
    // Otherwise a leaf ends without having heard of any other node.
    if (acknowledged) Signal(/*down=*/true, root);
  }
  void Broadcast(bool acknowledged) {
    const int root = shape_.NodeOf(static_cast<int>(spec_.root));
    uint16_t slot = 0;
    if (root == node_) {
      const std::vector<int>& ranks = shape_.ranks[static_cast<size_t>(node_)];
      const auto at = std::find(ranks.begin(), ranks.end(), static_cast<int>(spec_.root));
      slot = static_cast<uint16_t>(at - ranks.begin());
      plan_.result_is_input = ranks.size() == 1;
    }
    // Other members of the root's node get the result from work.
    const bool take = root == node_ && !plan_.result_is_input;
    SendDown(root, WidthFor(spec_.bytes), {0, spec_.bytes},
             take ? StepMemory::kWork : StepMemory::kInput, slot, take);
    // Otherwise the root ends without having heard of any other node.
    if (acknowledged) Signal(/*down=*/false, root);
  }
  // Copies this node's inputs to the places of their ranks, and clears those of absent ranks.
  void TakeInputs() {
    const std::vector<int>& ranks = shape_.ranks[static_cast<size_t>(node_)];
    for (size_t slot = 0; slot < ranks.size(); ++slot) {
      const Range place = RankRange(ranks[slot]);
      for (const Range& piece : Pieces(place)) {
        Append({.kind = StepKind::kTake,
                .slot = static_cast<uint16_t>(slot),
                .at = piece.begin,
                .from = piece.begin - place.begin,
                .bytes = piece.size()});
      }
    }
    for (int rank = 0; rank < shape_.world; ++rank) {
      if (absent_[static_cast<size_t>(rank)]) Clear(RankRange(rank));
    }
  }
  void AllGather() {
    TakeInputs();
    if (n_ == 1) return;
    const uint64_t total = spec_.bytes * static_cast<uint64_t>(shape_.world);
    if (IsTiny(total)) {
      GatherUp(0);
      return SendDown(0, kWideTree, {0, total}, StepMemory::kWork, 0);
    }
    const auto pieces_for = [&](int node) { return PiecesOf(NodeRanges(node)); };
    for (const Range& piece : pieces_for(node_)) Send(Right(), piece);
    RingSpread(Left(), pieces_for);
  }
  void GatherUp(int root) {
    const int v = Below(root);
    for (const int child : Children(v, kWideTree)) {
      for (const Range& range : SubtreeRanges(child, root)) Receive(Up(child, root), range);
    }
    if (v == 0) return;
    for (const Range& range : SubtreeRanges(v, root)) Send(Up((v - 1) / kWideTree, root), range);
  }
  std::vector<Range> SubtreeRanges(int v, int root) const {
    std::vector<Range> ranges = NodeRanges(Up(v, root));
    for (const int child : Children(v, kWideTree)) {
      for (const Range& range : SubtreeRanges(child, root)) ranges.push_back(range);
    }
    return ranges;
  }
  void ReduceScatter() {
    const uint64_t total = spec_.bytes * static_cast<uint64_t>(shape_.world);
    // A small vector costs less as a whole than in the n - 1 steps of a ring.
    if (n_ == 1 || total <= kSmallBytes) return AllReduce(total);
    // A fold that begins with the left neighbor's part ends with the part of this node.
    RingFold(node_ - 1, /*send_last=*/false, [&](int node) { return PiecesOf(NodeRanges(node)); });
  }
  void AllToAll() {
    const std::vector<int>& mine = shape_.ranks[static_cast<size_t>(node_)];
    const uint64_t row = spec_.bytes * static_cast<uint64_t>(shape_.world);
    const auto place = [&](size_t slot, int rank) {
      const uint64_t begin = slot * row + RankRange(rank).begin;
      return Range{begin, begin + spec_.bytes};
    };
    // Parts between members of this node need no message, and parts of absent ranks are 0.
    for (size_t to = 0; to < mine.size(); ++to) {
      for (size_t from = 0; from < mine.size(); ++from)
        Exchange(from, mine[to], place(to, mine[from]));
      for (int rank = 0; rank < shape_.world; ++rank) {
        if (absent_[static_cast<size_t>(rank)]) Clear(place(to, rank));
      }
    }
    // Each node begins with another peer, so that not all of them send to one receiver at once.
    for (int d = 1; d < n_; ++d) {
      const int peer = (node_ + d) % n_;
      for (size_t from = 0; from < mine.size(); ++from) {
        for (const int to : shape_.ranks[static_cast<size_t>(peer)]) {
          for (const Range& piece : Pieces(RankRange(to))) {
            Send(peer, piece, StepMemory::kInput, static_cast<uint16_t>(from));
          }
        }
      }
    }
    // In the order in which the peer sends: by its members first, then by the members here.
    for (int d = 1; d < n_; ++d) {
      const int peer = (node_ + n_ - d) % n_;
      for (const int from : shape_.ranks[static_cast<size_t>(peer)]) {
        for (size_t to = 0; to < mine.size(); ++to) {
          for (const Range& piece : Pieces(place(to, from))) Receive(peer, piece);
        }
      }
    }
  }
  void Exchange(size_t from_slot, int to_rank, Range at) {
    const uint64_t from = RankRange(to_rank).begin;
    for (const Range& piece : Pieces(at)) {
      Append({.kind = StepKind::kTake,
              .slot = static_cast<uint16_t>(from_slot),
              .at = piece.begin,
              .from = from + piece.begin - at.begin,
              .bytes = piece.size()});
    }
  }

  bool ProvesAllBegan(bool acknowledged) const {
    if (n_ == 1) return true;
    // In a Reduce and a Broadcast bytes flow in one direction only. Without a signal back, the root
    // of a Reduce is the only node that hears of all others, and in a Broadcast no node does.
    const bool at_root =
        HasRoot(spec_.kind) && shape_.NodeOf(static_cast<int>(spec_.root)) == node_;
    if (spec_.kind == CallKind::kReduce) return acknowledged || at_root;
    if (spec_.kind == CallKind::kBroadcast) return acknowledged && at_root;
    return true;
  }

  const GroupShape& shape_;
  const CallSpec& spec_;
  const int node_;
  const int n_;
  uint64_t grain_ = 1;
  std::vector<bool> absent_;  // by rank
  // Whether "own" is the input of the one member, as it is.
  bool in_place_ = false;
  // Whether pieces are as small as a long pipeline needs them.
  bool fine_ = false;
  GroupPlan plan_;
};

}  // namespace

int GroupShape::members() const {
  size_t count = 0;
  for (const std::vector<int>& each : ranks) count += each.size();
  return static_cast<int>(count);
}

int GroupShape::NodeOf(int rank) const {
  for (size_t node = 0; node < ranks.size(); ++node) {
    if (std::binary_search(ranks[node].begin(), ranks[node].end(), rank)) {
      return static_cast<int>(node);
    }
  }
  return -1;
}

uint64_t GroupPlan::ReceivedBytes(int peer) const {
  uint64_t bytes = 0;
  for (const uint32_t step : receives[static_cast<size_t>(peer)]) bytes += steps[step].bytes;
  return bytes;
}

GroupPlan MakeGroupPlan(const GroupShape& shape, const CallSpec& spec, int node,
                        bool acknowledged) {
  PHALANX_CHECK(node >= 0 && node < shape.nodes(), "a node of the group");
  return Planner(shape, spec, node).Make(acknowledged);
}

GroupPlan MakeAdoptionPlan(int nodes, int node, uint32_t holder,
                           const std::vector<uint32_t>& takers, uint64_t bytes) {
  GroupPlan plan;
  plan.receives.resize(static_cast<size_t>(nodes));
  const bool holds = static_cast<uint32_t>(node) == holder;
  if (!holds) plan.work_bytes = bytes;
  for (uint64_t at = 0; at < bytes; at += kMaxPieceBytes) {
    const uint64_t piece = std::min(kMaxPieceBytes, bytes - at);
    for (size_t i = 0; holds && i < takers.size(); ++i) {
      plan.steps.push_back({.kind = StepKind::kSend,
                            .memory = StepMemory::kInput,
                            .peer = static_cast<int>(takers[i]),
                            .from = at,
                            .bytes = piece});
    }
    if (holds) continue;
    plan.receives[holder].push_back(static_cast<uint32_t>(plan.steps.size()));
    plan.steps.push_back(
        {.kind = StepKind::kReceive, .peer = static_cast<int>(holder), .at = at, .bytes = piece});
  }
  MarkFinal(plan);
  return plan;
}

ResultPlace ResultOf(const GroupPlan& plan, const GroupShape& shape, const CallSpec& spec, int node,
                     size_t slot) {
  const int rank = shape.ranks[static_cast<size_t>(node)][slot];
  const uint64_t bytes = ResultBytes(spec, shape.world, rank);
  switch (spec.kind) {
    case CallKind::kReduceScatter:
      return {StepMemory::kWork, 0, static_cast<uint64_t>(rank) * spec.bytes, bytes};
    case CallKind::kAllToAll:
      return {StepMemory::kWork, 0, slot * bytes, bytes};
    default:
      if (plan.result_is_input) return {StepMemory::kInput, 0, 0, bytes};
      return {StepMemory::kWork, 0, 0, bytes};
  }
}

}  // namespace phalanx::jobs
