// Finds the word that a misspelled one stands for. Pure; any thread.
#ifndef PHALANX_CLI_NEAR_WORD_H_
#define PHALANX_CLI_NEAR_WORD_H_

#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

// Returns ", did you mean \"get\"?" for "gett": the word that is reached with the fewest letters
// added, removed, replaced or swapped with their neighbour, at most a third of its length and at
// least one. Returns "" if no word is so near.
std::string DidYouMean(absl::string_view text, const std::set<std::string>& words);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_NEAR_WORD_H_
