#include "src/cli/shell/completion_scripts.h"

#include <map>

#include "src/common/check.h"

namespace phalanx::runtime {
namespace {

// bash splits words also at the characters of COMP_WORDBREAKS, by default "=" and ":" among them.
// The parts are put together again, and all but the last one is removed from the answers, because
// bash replaces only the last one.
constexpr absl::string_view kBash = R"(# Completion of phalanx for bash. To use it:
#   source <(phalanx completion bash)
# or, for every shell to come:
#   phalanx completion bash > ~/.local/share/bash-completion/completions/phalanx
_phalanx() {
  local IFS=$' \t\n' rest=$COMP_LINE command=${COMP_WORDS[0]} word current kept answer i
  local -a arguments=() answers=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((i == 0)) || [[ $rest == [[:space:]]* || -z $rest ]]; then
      arguments+=("$word")
    else
      arguments[-1]+=$word
    fi
    rest=${rest#"${rest%%[![:space:]]*}"}
    rest=${rest#"$word"}
  done
  current=${arguments[-1]}
  word=${COMP_WORDS[COMP_CWORD]}
  [[ $word != [=:] ]] || word=
  kept=${current%"$word"}
  [[ $command != '~/'* ]] || command=$HOME/${command#'~/'}
  mapfile -t answers < <("$command" completion bash -- "${arguments[@]:1}" 2>/dev/null)
  COMPREPLY=()
  if [[ ${answers[0]-} == :files && $current == --*=* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t answers < <(compgen -f -- "${current#*=}")
    answers=("${answers[@]/#/${current%%=*}=}")
  elif [[ ${answers[0]-} == :files ]]; then
    compopt -o default 2>/dev/null
    return
  else
    answers=("${answers[@]%%$'\t'*}")
  fi
  for answer in "${answers[@]}"; do
    COMPREPLY+=("${answer#"$kept"}")
  done
}
complete -F _phalanx phalanx
)";

constexpr absl::string_view kZsh = R"(#compdef phalanx
# Completion of phalanx for zsh. To use it:
#   source <(phalanx completion zsh)
# or, for every shell to come, in a folder of $fpath:
#   phalanx completion zsh > FOLDER/_phalanx
_phalanx() {
  local answer command=${words[1]/#\~\//$HOME/} help
  local -a answers described
  answers=("${(@f)$("$command" completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ $answers[1] == :files ]]; then
    compset -P '--*='
    _files
    return
  fi
  for answer in $answers; do
    help=${answer#*$'\t'}
    described+=("${${answer%%$'\t'*}//:/\\:}${help:+:$help}")
  done
  _describe -V phalanx described
}
if [[ $funcstack[1] == _phalanx ]]; then
  _phalanx "$@"
else
  compdef _phalanx phalanx
fi
)";

constexpr absl::string_view kFish = R"(# Completion of phalanx for fish. To use it:
#   phalanx completion fish | source
# or, for every shell to come:
#   phalanx completion fish > ~/.config/fish/completions/phalanx.fish
function __phalanx_ask
    set -l words (commandline -opc)
    set -l program (string replace -r -- '^~/' "$HOME/" $words[1])
    set -l current (commandline -ct)
    $program completion fish -- $words[2..-1] "$current" 2>/dev/null
end
function __phalanx_words
    set -l answers (__phalanx_ask)
    test "$answers[1]" = :files
    or string join -- \n $answers
end
complete -c phalanx -k -f -a '(__phalanx_words)'
# fish completes the name of a file itself, also after a quote and "=".
complete -c phalanx -n 'string match -q -- :files (__phalanx_ask)[1]' -F
)";

const std::map<std::string, absl::string_view>& Scripts() {
  static const auto* const scripts =
      new std::map<std::string, absl::string_view>{{"bash", kBash}, {"fish", kFish}, {"zsh", kZsh}};
  return *scripts;
}

}  // namespace

std::vector<std::string> CompletionShells() {
  std::vector<std::string> shells;
  for (const auto& [shell, script] : Scripts()) shells.push_back(shell);
  return shells;
}

absl::string_view CompletionScript(absl::string_view shell) {
  const auto found = Scripts().find(std::string(shell));
  PHALANX_CHECK(found != Scripts().end(), "the flag accepts these shells only");
  return found->second;
}

}  // namespace phalanx::runtime
