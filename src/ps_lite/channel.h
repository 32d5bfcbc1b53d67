// Channel: this process as a member of the job: it sends messages to the others, receives theirs,
// and hears of their ends.
//
//   Office ── Send ──► window of calls ── phx_member_send ──► node
//   Office ◄── on_message ── receiving thread ◄── phx_member_receive
//   Office ◄── on_left, on_died, on_second ── watching thread ◄── phx_member_wait_change
//
// Any thread sends. Messages to one peer keep the order of the calls.
//
// The death of a peer is a failure, unless a next life can take its place, which is then awaited
// for some time (Settings::restart_seconds).
#ifndef PHALANX_PS_LITE_CHANNEL_H_
#define PHALANX_PS_LITE_CHANNEL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ps/internal/message.h"
#include "src/ps_lite/client_functions.h"
#include "src/ps_lite/peer.h"
#include "src/ps_lite/root.h"
#include "src/ps_lite/settings.h"
#include "src/ps_lite/wire.h"

namespace phalanx::ps_lite {

// Messages that have not left the node, of all receivers: their bytes, each with what it costs a
// node besides, and their number. A call of Send waits for the oldest ones if there are more. Less
// than what a node takes of a member (32 MiB), and a connection of calls (60,000).
inline constexpr uint64_t kSendWindowBytes = uint64_t{24} << 20;
inline constexpr uint64_t kSendCostBytes = 64;
// A message to a receiver that has more than this of them waits as well, so that memory which is
// sent is still in the cache. The pieces of one message do not: arrays of many MiB for several
// receivers go to all of them at a time.
inline constexpr uint64_t kSendWindowOfPeer = uint64_t{1} << 20;
inline constexpr uint64_t kSendWindowCalls = 16384;

// What a peer that has died leaves behind.
enum class Loss {
  kNothing,  // a next life can take its place
  kState,    // what only it had, as all processes know
  kAnswers,  // what this process has asked it
};

// Whose failure it is.
enum class Failure {
  kOwn,    // this process's alone: for the others it dies
  kOther,  // that of another process, or of the job, and all know
  kLate,   // no process has taken the place of another one, which others see about now
};

class Channel {
 public:
  struct Events {
    // The receiving thread. The life is that of the sender.
    std::function<void(::ps::Message message, uint64_t life)> on_message;
    // The watching thread. A peer has left; a life of a peer has died, and a next one is awaited,
    // or there; about a second has passed.
    std::function<void(Peer peer)> on_left;
    std::function<void(Peer peer, uint64_t life)> on_died;
    std::function<void()> on_second;
    // Any thread.
    std::function<Loss(Peer peer)> loss_of;
    // A peer has died, or the keeper has ended the job; or this process is no member any more, or
    // has received or could not send something. Can come several times: the first one counts.
    std::function<void(const std::string& why, Failure failure)> on_failure;
  };

  // Connects to the node and joins the job. Returns null and what is wrong. In `place` the address
  // is that of the node; empty: PHALANX_ADDRESS, else a private cluster, which ends with this
  // process.
  static std::unique_ptr<Channel> Join(const Settings& settings, const Place& place,
                                       std::string* wrong);
  // REQUIRES: after Run, Leave has returned.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Of the node. Valid as long as this.
  std::string address() const { return client_.client_address(connection_); }
  Peer own() const { return own_; }
  uint64_t life() const { return client_.member_life(member_); }
  const ClientFunctions& client() const { return client_; }
  // Of this process with its node. Valid as long as this.
  phx_client* connection() const { return connection_; }

  // Begins to receive.
  void Run(Events events);
  // Sends a message; its arrays can be changed when this returns. An urgent one does not wait for
  // messages before it to leave the node. With a life that is not negative it is for that life
  // alone. What is wrong comes by on_failure, but not if the receiver has died, which is one of its
  // own or none.
  void Send(Peer to, const ::ps::Message& message, bool urgent, int64_t life = -1);
  // Waits until all of these are seen as live, at most for the timeout of the settings. Also
  // returns what is wrong when this process is no member any more: on_failure has had the reason
  // before.
  std::string WaitForLive(const std::vector<Peer>& peers);
  // The same for the keeper. In a next life for which it has ended already: for as long as a next
  // life is waited for.
  std::string WaitForKeeper();
  // Waits until no other process is live, and no next life is awaited.
  void WaitForOthers();
  std::vector<Peer> Dead() const { return InState(PHX_DIED); }
  std::vector<Peer> Left() const { return InState(PHX_LEFT); }
  // A call for a table has failed. That is a failure if no other reason is seen for it in time.
  void Suspect(const std::string& why) { KeepError(own_, 0, /*response=*/false, why); }
  // Ends the membership because of a failure. The others see a death, unless it is one that they
  // know of.
  void GiveUp(Failure failure);
  // Waits until all messages have left the node, and leaves the job. No more events come then.
  void Leave();

 private:
  // Of one receiver: its messages are sent one after the other.
  struct Line {
    std::mutex mu;
  };
  // A call whose message has not left.
  struct Sending {
    phx_call* call;
    Peer to;
    uint64_t life;  // of the receiver
    bool response;
    uint64_t cost;
  };
  // A message that was not sent. The watching thread reports it if it finds no other reason.
  struct Unsent {
    Peer to;
    uint64_t life;
    bool response;
    std::string why;
    std::chrono::steady_clock::time_point since;
  };
  struct Seen {
    int state = PHX_ABSENT;
    uint64_t life = 0;
    uint64_t change = 0;
    std::string host;
  };
  struct Death {
    uint64_t life;
    uint64_t change;  // numbers all deaths in their order, about
    std::string host;
    std::chrono::steady_clock::time_point since;
  };
  // What one look at the members has found.
  struct Changes {
    std::vector<Peer> left;
    std::vector<std::pair<Peer, uint64_t>> died;  // and the life
  };
  // Of the messages of one sender.
  struct Incoming {
    uint64_t life = 0;
    Assembly assembly = {};
  };
  struct Sends {
    std::mutex mu;
    std::condition_variable cond;
    std::deque<Sending> calls;
    // Of the calls, of those that are about to be made, and of those whose end is waited for.
    uint64_t cost = 0;
    uint64_t count = 0;
    std::map<Peer, uint64_t> cost_of;  // of each receiver
    std::vector<Unsent> unsent;        // the first of each receiver and kind
  };

  Channel(const ClientFunctions& client, const Settings& settings, const Place& place)
      : client_(client),
        settings_(settings),
        own_{settings.role, place.rank},
        private_cluster_(place.private_cluster) {}

  // Takes what an earlier run of the job has left, under the same name, as not there.
  void ForgetEarlierRun();
  std::vector<phx_member_info> MembersOf(Role role) const;
  void Receive();
  std::string TakeMessage(phx_message* message, std::map<Peer, Incoming>* incoming);
  void Watch();
  // Reads the states of all members; reports changes. Returns whether that was a failure.
  bool Scan();
  void ScanRole(Role role, Changes* changes);
  // Reports the first death as a failure if a peer that has died does not come back. Returns
  // whether it does not.
  bool ReportDeath();
  // Reports that the keeper has left: it does so as the last one, unless it has failed.
  bool ReportEnd(const std::vector<Peer>& left);
  std::string BehindDeath(const std::string& what) const;

  // What is sent to a life of a peer; `any`: to the one that is there.
  struct Receiver {
    Peer peer;
    uint64_t life;
    bool any;
    bool response;
  };
  void SendBytes(const Receiver& to, std::string_view bytes, bool urgent);
  // Waits until another message to the receiver fits into its window.
  void WaitForWindow(Peer to);
  // Waits until bytes of this cost fit into the window of all, and counts them.
  void Reserve(Peer to, uint64_t cost, bool urgent);
  // Waits for the oldest call, of one receiver unless this is null, or until another thread has
  // done so.
  void EndOldest(std::unique_lock<std::mutex>& lock, const Peer* to);
  void GiveBack(Peer to, uint64_t cost);
  // Takes calls that have ended: no Send may come that does.
  void EndEnded();
  // Waits for a call; keeps its error.
  void End(const Sending& sending);
  void KeepError(Peer to, uint64_t life, bool response, const std::string& why);
  // An error for which no other reason was seen in time; empty if there is none.
  std::string TakeError();
  Seen SeenOf(Peer peer) const;
  // Those whose newest life is in this state.
  std::vector<Peer> InState(int state) const;
  // Waits for at most so many seconds, which are those of this variable.
  std::string WaitForLive(const std::vector<Peer>& peers, int seconds, const char* variable);

  const ClientFunctions& client_;
  const Settings settings_;
  const Peer own_;
  const bool private_cluster_;
  phx_client* connection_ = nullptr;
  phx_member* member_ = nullptr;
  Events events_;  // constant after Run
  std::thread receiving_;
  std::thread watching_;
  std::atomic<bool> leaving_{false};

  std::mutex lines_mu_;
  std::map<Peer, Line> lines_;

  Sends sends_;

  mutable std::mutex states_mu_;
  std::condition_variable states_cond_;
  std::map<Peer, Seen> states_;
  std::map<Peer, Death> deaths_;         // for which no next life has come
  std::map<Peer, uint64_t> past_lives_;  // of an earlier run; constant after Join
  bool over_ = false;                    // no more states come
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_CHANNEL_H_
