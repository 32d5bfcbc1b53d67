// Environment: variables that the program has given (Init), else those of the process. Any thread
// after Init.
#ifndef PS_INTERNAL_ENV_H_
#define PS_INTERNAL_ENV_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>

namespace ps {

class Environment {
 public:
  static Environment* Get();
  static std::shared_ptr<Environment> _GetSharedRef();
  // Replaces what an earlier Init has given. Before Start.
  static Environment* Init(const std::unordered_map<std::string, std::string>& envs);

  // Returns nullptr if there is none. Valid until the next Init.
  const char* find(const char* name);

 private:
  Environment() = default;

  std::unordered_map<std::string, std::string> given_;
};

}  // namespace ps

#endif  // PS_INTERNAL_ENV_H_
