// Sessions over random streams against a simple model: in each session, the messages that one end
// got for sending are those that the other end delivers: a prefix at any time, and all of them once
// the faults stop.
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/directory/session/session.h"

namespace phalanx::directory {
namespace {

using Log = std::vector<uint64_t>;

struct Model {
  Log node_sent, shard_got;
  Log shard_sent, node_got;
};

bool IsPrefix(const Log& part, const Log& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// A node, a shard that restarts now and then, and one stream at a time between them.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed), node_(Config(), Node()) {}

  // One random step; with faults only if `faults`.
  void Step(bool faults) {
    switch (random_.Below(faults ? 12 : 9)) {
      case 0:
      case 1:
        return NodeSends();
      case 2:
      case 3:
        return ShardSends();
      case 4:
      case 5:
        return NodeToShard();
      case 6:
      case 7:
        return ShardToNode();
      case 8:
        return Pass(absl::Milliseconds(random_.Below(30)));
      case 9:
        if (random_.Chance(0.2)) Break();
        return;
      case 10:
        if (random_.Chance(0.02)) Pass(absl::Milliseconds(random_.Below(3000)));
        return;
      default:
        if (random_.Chance(0.01)) RestartShard();
    }
  }

  // No faults from now on: every queued message arrives.
  void Settle() {
    for (int i = 0; i < 500; ++i) {
      NodeToShard();
      ShardToNode();
      if (i % 50 == 0) Pass(absl::Milliseconds(100));
    }
  }

  // Empty if the model holds so far; with `all`, only if nothing is missing either.
  std::string Violation(bool all) const {
    if (!error_.ok()) return error_.ToString();
    for (const auto& [id, model] : models_) {
      if (!IsPrefix(model.shard_got, model.node_sent)) return "the shard got what was not sent so";
      if (!IsPrefix(model.node_got, model.shard_sent)) return "the node got what was not sent so";
    }
    if (!all) return "";
    if (current_ == 0 || !node_.established()) return "no session at the end";
    const Model& last = models_.at(current_);
    if (last.shard_got != last.node_sent) return "the shard misses messages";
    if (last.node_got != last.shard_sent) return "the node misses messages";
    return "";
  }

  int resumed() const { return resumed_; }
  int sessions() const { return static_cast<int>(models_.size()); }

 private:
  static v1::NodeInfo Node() {
    v1::NodeInfo node;
    node.mutable_key()->set_node(1);
    node.set_name("n1");
    node.mutable_key()->set_incarnation(1);
    return node;
  }
  static SessionConfig Config() {
    SessionConfig config;
    config.limits.unacknowledged_messages = 400;
    return config;
  }

  void NodeSends() {
    if (current_ == 0) return;
    v1::NodeMessage message;
    message.mutable_query_request()->set_request_id(++counter_);
    if (random_.Chance(0.01)) {
      message.mutable_query_request()->set_object_id(std::string(400'000, 'x'));
    }
    node_.Send(std::move(message));
    if (node_.overflowed()) {
      current_ = 0;
      return Break();
    }
    models_[current_].node_sent.push_back(counter_);
  }

  void ShardSends() {
    if (session_ == nullptr) return;
    v1::ShardMessage message;
    message.mutable_query_reply()->set_request_id(++counter_);
    session_->Send(std::move(message));
    if (session_->overflowed()) {
      session_.reset();
      return Break();
    }
    models_[session_->id()].shard_sent.push_back(counter_);
  }

  void Pass(absl::Duration time) {
    now_ = now_ + time;
    if (session_ != nullptr && session_->Expired(now_)) {
      session_.reset();
      Break();
    }
    if (node_.ShardSilent(now_)) Break();
  }

  void RestartShard() {
    Break();
    session_.reset();
    ++incarnation_;
  }

  // The stream ends; some frames in flight still arrive, at either end.
  void Break() {
    for (uint64_t n = random_.Below(4); n > 0; --n) {
      random_.Chance(0.5) ? Arrive(to_shard_) : Arrive(to_node_);
    }
    node_.StreamClosed(now_);
    if (session_ != nullptr) session_->StreamClosed(now_);
    handshake_.reset();
    attached_ = open_ = false;
    to_shard_.clear();
    to_node_.clear();
  }

  void Open() {
    node_.StreamOpened(std::string(32, 'n'), now_);
    handshake_.emplace(config_, std::string(32, 's'));
    open_ = true;
  }

  void NodeToShard() {
    if (!open_) Open();
    if (const auto* frame = node_.NextFrame(now_)) to_shard_.push_back(*frame);
    Arrive(to_shard_);
  }

  void ShardToNode() {
    if (attached_ && session_ != nullptr) {
      if (const auto* frame = session_->NextFrame(now_)) to_node_.push_back(*frame);
    }
    Arrive(to_node_);
  }

  template <typename Frame>
  void Arrive(std::deque<Frame>& frames) {
    if (frames.empty()) return;
    const Frame frame = frames.front();
    const bool twice = frame.has_batch() && random_.Chance(0.05);
    if (!twice) frames.pop_front();
    const absl::Status taken = Take(frame);
    if (!taken.ok()) error_ = taken;
  }

  absl::Status Take(const v1::NodeFrame& frame) {
    if (attached_) {
      if (session_ == nullptr) return absl::OkStatus();
      const absl::Status taken = session_->OnFrame(frame, now_);
      for (const auto& message : session_->TakeMessages()) {
        models_[session_->id()].shard_got.push_back(message.query_request().request_id());
      }
      return taken;
    }
    auto answer = handshake_->OnFrame(frame);
    if (!answer.ok()) return answer.status();
    if (answer->has_value()) to_node_.push_back(**answer);
    if (!handshake_->proven()) return absl::OkStatus();
    const v1::Hello hello = handshake_->TakeHello();
    if (session_ == nullptr || !session_->CanResume(hello)) {
      session_ =
          std::make_unique<ShardSession>(++next_session_, incarnation_, config_, Node(), now_);
    }
    session_->StreamOpened(hello, now_, absl::ZeroDuration());
    attached_ = true;
    return absl::OkStatus();
  }

  absl::Status Take(const v1::ShardFrame& frame) {
    const absl::Status taken = node_.OnFrame(frame, now_);
    if (const auto event = node_.TakeEvent()) {
      current_ = frame.welcome().session_id();
      models_[current_];
      resumed_ += *event == NodeSession::Event::kResumed;
    }
    for (const auto& message : node_.TakeMessages()) {
      models_[current_].node_got.push_back(message.query_reply().request_id());
    }
    return taken;
  }

  Random random_;
  Instant now_ = Instant::FromNanos(1'000'000'000'000);
  uint64_t counter_ = 0;
  absl::Status error_;

  NodeSession node_;
  SessionId current_ = 0;  // the session that the node is in

  const SessionConfig config_ = Config();
  uint64_t incarnation_ = 1;
  SessionId next_session_ = 0;
  std::unique_ptr<ShardSession> session_;

  bool open_ = false;      // the node has a stream
  bool attached_ = false;  // and has proved the secret on it
  std::optional<ShardHandshake> handshake_;
  std::deque<v1::NodeFrame> to_shard_;
  std::deque<v1::ShardFrame> to_node_;

  std::map<SessionId, Model> models_;
  int resumed_ = 0;
};

// The first violation in this world, or nothing.
std::string FirstViolation(World& world) {
  for (int step = 0; step < 4000; ++step) {
    world.Step(/*faults=*/true);
    if (step % 16 == 0) {
      if (std::string violation = world.Violation(false); !violation.empty()) return violation;
    }
  }
  world.Settle();
  return world.Violation(true);
}

std::vector<uint64_t> Seeds() {
  if (testing::SeedGiven()) return {testing::TestSeed()};
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 1; seed <= 60; ++seed) seeds.push_back(seed);
  return seeds;
}

TEST(SessionModelTest, EveryMessageArrivesOnceAndInOrderPerSession) {
  int resumed = 0, sessions = 0;
  for (const uint64_t seed : Seeds()) {
    PHALANX_TRACE_SEED(seed);
    World world(seed);
    ASSERT_EQ(FirstViolation(world), "");
    resumed += world.resumed();
    sessions += world.sessions();
  }
  if (testing::SeedGiven()) return;
  EXPECT_GT(resumed, 600);
  EXPECT_GT(sessions, 180);
}

bool Caught(Defect defect) {
  const testing::ScopedDefect on(defect);
  for (const uint64_t seed : Seeds()) {
    World world(seed);
    if (!FirstViolation(world).empty()) return true;
  }
  return false;
}

TEST(SessionModelTest, NoticesSequencesThatAreNotDeduplicated) {
  EXPECT_TRUE(Caught(Defect::kSequenceNotDeduplicated));
}

TEST(SessionModelTest, NoticesAMessageLostOnResume) {
  EXPECT_TRUE(Caught(Defect::kMessageLostOnResume));
}

}  // namespace
}  // namespace phalanx::directory
