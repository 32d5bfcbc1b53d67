// The deaths that a launch is to see (the declared ones), and which of them it has seen. There are
// two ways to declare one:
//
//   --fail 3@57       the library kills task 3 as it makes its 57th call of a group. Several of one
//                     task are those of its lives, in turn. With servers and workers, 3 is worker3;
//                     any task can be given by its name, such as server1@57
//   --fail server:1,20,2@push   life 2 of server1 is killed as it has a push of clock 20: of the
//                     tasks of a parameter server, in any order of lives
//   mock=3,1,0,2      a word of the command, Rabit's order to its mock library: rank 3, version 1,
//                     call 0 of that version, life 2. The program reads it itself
//
// A process that is killed on order writes a line into its mark before: the number of the life, its
// own, and the text of that death.
//
// A core: owned by the Launcher, which starts the lives and reads their marks.
#ifndef PHALANX_CLI_LAUNCH_DECLARED_DEATHS_H_
#define PHALANX_CLI_LAUNCH_DECLARED_DEATHS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/cli/launch/job_place.h"
#include "src/client/jobs/declared_death.h"

namespace phalanx::runtime {

// Returns the text of the death in the mark if it is one of this life and process; any process of
// the life without that.
absl::string_view DeathInMark(absl::string_view mark, int life, std::optional<int> process);

class DeclaredDeaths {
 public:
  // The deaths of tasks of other launches are theirs; a mock= beyond the world is that of the
  // launch with worker0. Returns InvalidArgument, with the forms that are right, if a text of
  // --fail has none of them, or names no task. Words that begin with mock= are left to the program
  // if they are no declaration, or the launch has no role of workers.
  static absl::StatusOr<DeclaredDeaths> Parse(const std::vector<std::string>& fail,
                                              const std::vector<std::string>& command,
                                              const LaunchTasks& tasks);

  // Tasks are numbered as in LaunchTasks.

  // Where the library is to kill this life, as PHALANX_FAIL has it; empty: nowhere.
  std::string PointOf(size_t task, int life) const;
  // Whether this life needs a mark.
  bool Has(size_t task, int life) const;
  // A life has ended, but not because the launch has stopped it. `how`: "worker3 ended with exit
  // code 0". `mark`: the death in its mark, or nothing.
  void Ended(size_t task, int life, absl::string_view how, absl::string_view mark);
  // Says so if --fail declares a death of this life, and it has ended otherwise.
  std::optional<std::string> Missed(size_t task, int life) const;
  // Returns a line for each death that was not made, and forgets them. Called when all tasks have
  // ended.
  std::vector<std::string> TakeUnmade();

 private:
  // Of a task that is in no launch.
  static constexpr size_t kNoTask = ~size_t{0};

  struct Death {
    std::string text;  // as it was declared
    size_t task = 0;
    std::string name;  // of the task
    int life = 0;
    // Of --fail.
    std::optional<internal::DeathPoint> point;
    // What the mark has. Not compared by `text`, since numbers and points can be written in several
    // ways.
    std::string mark;
    bool made = false;
    // How the life has ended; empty: it has not begun, or was stopped.
    std::string how;
  };

  absl::Status AddFail(absl::string_view text, const LaunchTasks& tasks);
  void AddMock(absl::string_view word, const RolePlace& workers, const LaunchTasks& tasks);
  static std::string Line(const Death& death);

  std::vector<Death> deaths_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_DECLARED_DEATHS_H_
