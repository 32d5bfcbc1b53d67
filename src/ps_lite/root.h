// The root: the scheduler's port (DMLC_PS_ROOT_URI and _PORT), at which the other processes of the
// job get their ranks, the job's name and the node.
//
//   worker ── "phalanx-ps worker RANK WORKERS SERVERS" ──► root     RANK -1: any
//   worker ◄── "ok RANK PRIVATE JOB ADDRESS", or "error TEXT" ── root     then the root closes
//
// Where the ranks are given already the answer is "full TEXT". It can be that of a job that ends,
// whose processes begin the next one: so a process asks again for some seconds.
#ifndef PHALANX_PS_LITE_ROOT_H_
#define PHALANX_PS_LITE_ROOT_H_

#include <memory>
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
      : given_{std::vector<bool>(1, true), std::vector<bool>(servers), std::vector<bool>(workers)} {
  }

  // Returns what is wrong, or sets the rank: the wanted one, or with -1 the least free one.
  std::string Assign(Role role, int wanted, int* rank);

 private:
  std::vector<bool> given_[3];  // by role
};

// Where a process joins its job.
struct Place {
  int rank = 0;
  std::string job;
  // Of the scheduler's node, and whether that is a private cluster, which all have to use.
  std::string address;
  bool private_cluster = false;
};

// The scheduler's side. One thread uses it; it has a thread of its own.
class Root {
 public:
  // Returns null and what is wrong: the port is in use, or the host is another one.
  static std::unique_ptr<Root> Listen(const std::string& host, int port, std::string* wrong);
  // Stops.
  ~Root();
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  // Answers, from now on and those that are waiting.
  void Serve(const Settings& settings, const Place& place);

 private:
  explicit Root(int listening) : listening_(listening) {}

  // A process that asks.
  struct Asking {
    int fd;
    std::string text;
    int64_t until;  // milliseconds
  };
  void Run();
  void Accept(std::vector<Asking>* asking);
  // Returns whether the connection is done with.
  bool Read(Asking* asking);
  std::string AnswerTo(const std::string& line);

  const int listening_;
  int stop_[2] = {-1, -1};  // a pipe
  // Constant while the thread runs.
  Settings settings_;
  Place place_;
  // The thread's.
  std::unique_ptr<RankBook> ranks_;
  std::thread thread_;
};

// The line that a process sends, without its end.
std::string QuestionOf(const Settings& settings);
// Reads the place in the root's answer. Returns what is wrong; `full`: all ranks are given.
std::string ReadAnswer(const std::string& line, Place* place, bool* full);

// Asks the root, again and again until it answers, at most for the timeout of the settings. Returns
// what is wrong.
std::string AskRoot(const Settings& settings, Place* place);

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_ROOT_H_
