// Channel: this process as a member of the job: it sends messages to the others, receives theirs,
// and hears of their ends.
//
//   Office ── Send ──► window of calls ── phx_member_send ──► node
//   Office ◄── on_message ── receiving thread ◄── phx_member_receive
//   Office ◄── on_left, on_failure, on_second ── watching thread ◄── phx_member_wait_change
//
// Any thread sends. Messages to one peer keep the order of the calls.
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

class Channel {
 public:
  struct Events {
    std::function<void(::ps::Message message)> on_message;  // the receiving thread
    // The watching thread. A peer has left; about a second has passed.
    std::function<void(Peer peer)> on_left;
    std::function<void()> on_second;
    // A peer has died (`of_other`); or this process is no member any more, or has received or could
    // not send something. Can come several times: the first one counts.
    std::function<void(const std::string& why, bool of_other)> on_failure;
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

  // Begins to receive.
  void Run(Events events);
  // Sends a message; its arrays can be changed when this returns. An urgent one does not wait for
  // messages before it to leave the node. What is wrong comes by on_failure.
  void Send(Peer to, const ::ps::Message& message, bool urgent);
  // Waits until all of these are seen as live, at most for the timeout of the settings. Also
  // returns what is wrong when this process is no member any more: on_failure has had the reason
  // before.
  std::string WaitForLive(const std::vector<Peer>& peers);
  // Waits until no other process is live.
  void WaitForOthers();
  std::vector<Peer> Dead() const;
  // Ends the membership because of a failure. The others see a death; if it is one of another
  // process they have seen that, and this is no second one.
  void GiveUp(bool of_other);
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
    bool response;
    uint64_t cost;
  };
  // A message that was not sent. The watching thread reports it if it finds no other reason.
  struct Unsent {
    Peer to;
    bool response;
    std::string why;
    std::chrono::steady_clock::time_point since;
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
  std::string TakeMessage(phx_message* message, std::map<Peer, Assembly>* assemblies);
  void Watch();
  // Reads the states of all members; reports changes.
  // Returns whether a peer has died.
  bool Scan();
  void ScanRole(Role role, uint64_t* first_death, std::string* why, std::vector<Peer>* left);

  void SendBytes(Peer to, std::string_view bytes, bool response, bool urgent);
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
  void KeepError(Peer to, bool response, const std::string& why);
  // An error for which no other reason was seen in time; empty if there is none.
  std::string TakeError();
  int StateOf(Peer peer) const;

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
  std::map<Peer, int> states_;           // PHX_LIVE, ...
  std::map<Peer, uint64_t> past_lives_;  // of an earlier run; constant after Join
  bool over_ = false;                    // no more states come
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_CHANNEL_H_
