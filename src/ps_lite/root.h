// The root: the scheduler's port (DMLC_PS_ROOT_URI and _PORT), at which the other processes of the
// job get their ranks, the job's name and the node.
//
//   worker ── "phalanx-ps worker RANK WORKERS SERVERS" ──► root     RANK -1: any
//   worker ◄── "ok RANK PRIVATE JOB ADDRESS", or "error TEXT" ── root     behind an error it closes
//   worker ── "joined LIFE" ──► root                                      and closes
//
// The rank of a connection that ends without "joined" is free again, as is that of a server whose
// life has died. The port trusts its network: what asks there gets a rank and the job's name.
//
// Where the ranks are given already the answer is "full TEXT". It can be that of a job that ends,
// whose processes begin the next one, or that of a server whose death is not known yet: so a
// process asks again for some seconds.
#ifndef PHALANX_PS_LITE_ROOT_H_
#define PHALANX_PS_LITE_ROOT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/ps_lite/peer.h"
#include "src/ps_lite/settings.h"

namespace phalanx::ps_lite {

// Which ranks are given. One thread.
class RankBook {
 public:
  RankBook(int workers, int servers)
      : given_{std::vector<Given>(1, Given{true}), std::vector<Given>(servers),
               std::vector<Given>(workers)} {}

  // Returns what is wrong, or sets the rank: the wanted one, or with -1 the least free one.
  std::string Assign(Role role, int wanted, int* rank);
  // The process that has been given the rank has joined the job, with this life; or it will not.
  void Joined(Peer peer, uint64_t life);
  void GiveBack(Peer peer) { At(peer).given = false; }
  // This life has died. That can be known before Joined, or when another process has the rank.
  void Died(Peer peer, uint64_t life);

 private:
  struct Given {
    bool given = false;
    std::optional<uint64_t> life = {};  // of the process that has joined
    std::optional<uint64_t> died = {};  // the last life that has
  };
  Given& At(Peer peer) {
    return given_[static_cast<int>(peer.role)][static_cast<size_t>(peer.rank)];
  }

  std::vector<Given> given_[3];  // by role
};

// Where a process joins its job.
struct Place {
  int rank = 0;
  std::string job;
  // Of the scheduler's node, and whether that is a private cluster, which all have to use.
  std::string address;
  bool private_cluster = false;
};

// The scheduler's side. One thread uses it, and any thread calls Died; it has a thread of its own.
class Root {
 public:
  // Returns null and what is wrong: the port is in use, or the host is another one.
  static std::unique_ptr<Root> Listen(const std::string& host, int port, std::string* wrong);
  // Stops.
  ~Root();
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  // Answers, from now on and those that are waiting. `failed` gets the error that ends this, in the
  // root's thread.
  void Serve(const Settings& settings, const Place& place,
             std::function<void(const std::string& why)> failed);
  // This life of the process has died: another one can have its rank.
  void Died(Peer peer, uint64_t life);

 private:
  Root(int listening, const int (&stop)[2]) : listening_(listening), stop_{stop[0], stop[1]} {}

  // A process that asks.
  struct Asking {
    int fd;
    std::string text;
    int64_t until;  // milliseconds
    // What it has been given, and with which life it has joined the job.
    std::optional<Peer> given = std::nullopt;
    std::optional<uint64_t> joined = std::nullopt;
  };
  void Run();
  void Accept(std::vector<Asking>* asking);
  // Returns whether the connection is done with.
  bool Read(Asking* asking);
  void Close(const Asking& asking);
  std::string AnswerTo(const std::string& line, std::optional<Peer>* given);

  const int listening_;
  const int stop_[2];  // a pipe
  // Constant while the thread runs.
  Settings settings_;
  Place place_;
  std::function<void(const std::string& why)> failed_;
  // The thread's.
  int64_t accepts_from_ = 0;  // milliseconds
  std::mutex ranks_mu_;
  std::unique_ptr<RankBook> ranks_;  // under ranks_mu_
  std::thread thread_;
};

// The line that a process sends, without its end.
std::string QuestionOf(const Settings& settings);
// Reads the place in the root's answer. Returns what is wrong; `full`: all ranks are given.
std::string ReadAnswer(const std::string& line, Place* place, bool* full);

// Keeps the rank that the root has given. A value of one owner.
class Hold {
 public:
  Hold() = default;
  Hold(Hold&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Hold& operator=(Hold&& other) noexcept;
  // Without Confirm the rank is free again.
  ~Hold();

  static Hold Of(int fd);
  // This process has joined the job.
  void Confirm(uint64_t life);

 private:
  int fd_ = -1;
};

// Asks the root, again and again until it answers, at most for the timeout of the settings. A root
// that answers that all ranks are given is asked for five seconds, or by a server for as long as
// the others wait for it; if it ends meanwhile, its successor is waited for as before. Returns what
// is wrong.
std::string AskRoot(const Settings& settings, Place* place, Hold* hold);

// Whether both ends of the connection are this socket: a port of the range from which the kernel
// gives ports can be connected with itself while no process listens there.
bool IsConnectedToItself(int fd);

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_ROOT_H_
