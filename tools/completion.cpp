// sherd completion: what shells complete, from the verbs' own parsers.

#include <fmt/format.h>

#include "describe.h"
#include "verb.h"

namespace sherd::tools {
namespace {

constexpr const char* kExamples =
    "  sherd completion bash > ~/.local/share/bash-completion/completions/sherd\n"
    "  sherd completion zsh > ~/.zfunc/_sherd         with ~/.zfunc in fpath\n"
    "  sherd completion fish > ~/.config/fish/completions/sherd.fish\n";

enum class Kind { nothing, file, folder, name, choice };

Kind kind_of(const OptionDescription& option) {
  if (!option.choices().empty()) return Kind::choice;
  if (option.word == kNameWord) return Kind::name;
  if (option.word == kFolderWord) return Kind::folder;
  const bool file = option.word == kCheckpointWord || option.word == kFileWord || option.word == kPathWord;
  return file ? Kind::file : Kind::nothing;
}

std::string words_of(const std::vector<VerbDescription>& all) {
  std::string words;
  for (const VerbDescription& one : all) words += std::string(words.empty() ? "" : " ") + one.verb.name;
  return words;
}

// ---- bash

std::string bash_action(const OptionDescription& option) {
  switch (kind_of(option)) {
    case Kind::file:
      return "_sherd_files";
    case Kind::folder:
      return "_sherd_folders";
    case Kind::name:
      return "_sherd_names";
    case Kind::choice:
      return fmt::format("_sherd_words {}", fmt::join(option.choices(), " "));
    case Kind::nothing:
      break;
  }
  return ":";
}

std::string bash_verb(const VerbDescription& one) {
  std::string flags, valued, actions, places;
  for (const OptionDescription& option : one.options) {
    for (const std::string& name : option.names) flags += (flags.empty() ? "" : " ") + name;
    if (option.word.empty()) continue;
    valued += fmt::format("{}{}", valued.empty() ? "" : "|", fmt::join(option.names, "|"));
    actions += fmt::format("        {}) {}; return ;;\n", fmt::join(option.names, "|"), bash_action(option));
  }
  for (size_t i = 0; i < one.places.size(); ++i) {
    places += fmt::format("        {}) {} ;;\n", i, bash_action(one.places[i]));
  }
  std::string text = fmt::format("    {})\n      _sherd_flags='{}'\n", one.verb.name, flags);
  if (!actions.empty()) text += fmt::format("      case $before in\n{}      esac\n", actions);
  text += fmt::format("      _sherd_place '{}'\n", valued);
  if (!places.empty()) text += fmt::format("      case $_sherd_at in\n{}      esac\n", places);
  return text + "      ;;\n";
}

std::string bash(const std::vector<VerbDescription>& all) {
  std::string text =
      "# bash completion of sherd; made by `sherd completion bash`\n"
      "_sherd_words() { mapfile -t COMPREPLY < <(compgen -W \"$*\" -- \"$word\"); }\n"
      "_sherd_files() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); }\n"
      "_sherd_folders() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$word\"); }\n"
      "# The names in the checkpoint that stands before.\n"
      "_sherd_names() {\n"
      "  local names\n"
      "  names=$(\"${COMP_WORDS[0]}\" inspect --names \"${_sherd_first/#\\~/$HOME}\" 2>/dev/null)\n"
      "  local IFS=$'\\n'\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$names\" -- \"$word\")\n"
      "}\n"
      "# How many words without a dash stand before the cursor, and the first of them; $1: options that take a word.\n"
      "_sherd_place() {\n"
      "  local i skip=\n"
      "  _sherd_at=0 _sherd_first=\n"
      "  for ((i = 2; i < COMP_CWORD; ++i)); do\n"
      "    if [[ $skip ]]; then skip=; continue; fi\n"
      "    if [[ ${COMP_WORDS[i]} == -* ]]; then\n"
      "      [[ $1 && \"|$1|\" == *\"|${COMP_WORDS[i]}|\"* ]] && skip=1\n"
      "      continue\n"
      "    fi\n"
      "    ((_sherd_at++ == 0)) && _sherd_first=${COMP_WORDS[i]}\n"
      "  done\n"
      "  if [[ $word == -* ]]; then _sherd_words \"$_sherd_flags\"; _sherd_at=-1; fi\n"
      "}\n"
      "_sherd() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} i\n"
      "  local _sherd_at _sherd_flags _sherd_first=\n"
      "  COMPREPLY=()\n"
      "  for ((i = 2; i < COMP_CWORD; ++i)); do\n"
      "    [[ ${COMP_WORDS[i]} != -* ]] && { _sherd_first=${COMP_WORDS[i]}; break; }\n"
      "  done\n";
  text +=
      fmt::format("  if ((COMP_CWORD == 1)); then _sherd_words {} help --help --version; return; fi\n", words_of(all));
  text += fmt::format("  case ${{COMP_WORDS[1]}} in\n    help) _sherd_words {} ;;\n", words_of(all));
  for (const VerbDescription& one : all) text += bash_verb(one);
  return text + "  esac\n}\ncomplete -F _sherd sherd\n";
}

// ---- zsh

// In '...' of a specification: quotes end it, brackets and colons mean something.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_action(const OptionDescription& option) {
  switch (kind_of(option)) {
    case Kind::file:
      return "_files";
    case Kind::folder:
      return "_files -/";
    case Kind::name:
      return "_sherd_names";
    case Kind::choice:
      return fmt::format("({})", fmt::join(option.choices(), " "));
    case Kind::nothing:
      break;
  }
  return " ";
}

std::string zsh(const std::vector<VerbDescription>& all) {
  std::string text =
      "#compdef sherd\n"
      "# zsh completion of sherd; made by `sherd completion zsh`\n"
      "_sherd_names() {\n"
      "  local -a names\n"
      "  names=(${(f)\"$(sherd inspect --names ${(Q)line[1]} 2>/dev/null)\"})\n"
      "  compadd -a names\n"
      "}\n"
      "_sherd() {\n"
      "  local curcontext=$curcontext state line\n"
      "  local -a verbs=(\n";
  for (const VerbDescription& one : all) {
    text += fmt::format("    '{}:{}'\n", one.verb.name, zsh_text(one.verb.summary));
  }
  text +=
      "    'help:the help of a verb'\n"
      "  )\n"
      "  if ((CURRENT == 2)); then _describe verb verbs; return; fi\n"
      "  local verb=$words[2]\n"
      "  shift words; ((CURRENT--))\n"
      "  case $verb in\n"
      "    help) _describe verb verbs ;;\n";
  for (const VerbDescription& one : all) {
    text += fmt::format("    {})\n      _arguments -s -S", one.verb.name);
    for (const OptionDescription& option : one.options) {
      const std::string value =
          option.word.empty() ? "" : fmt::format(":{}:{}", zsh_text(option.word), zsh_action(option));
      for (const std::string& name : option.names) {
        text += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_text(option.help), value);
      }
    }
    for (size_t i = 0; i < one.places.size(); ++i) {
      const OptionDescription& place = one.places[i];
      text += fmt::format(" \\\n        '{}{}:{}:{}'", i + 1, place.required ? "" : ":", zsh_text(place.word),
                          zsh_action(place));
    }
    text += "\n      ;;\n";
  }
  return text + "  esac\n}\nif [[ $funcstack[1] == _sherd ]]; then _sherd \"$@\"; else compdef _sherd sherd; fi\n";
}

// ---- fish

std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish_action(const OptionDescription& option) {
  switch (kind_of(option)) {
    case Kind::file:
      return " -r -F";
    case Kind::folder:
      return " -x -a '(__fish_complete_directories)'";
    case Kind::name:
      return " -x -a '(__sherd_names)'";
    case Kind::choice:
      return fmt::format(" -x -a '{}'", fmt::join(option.choices(), " "));
    case Kind::nothing:
      break;
  }
  return " -x";
}

std::string fish(const std::vector<VerbDescription>& all) {
  std::string text =
      "# fish completion of sherd; made by `sherd completion fish`\n"
      "function __sherd_places\n"
      "  set -l words (commandline -opc)\n"
      "  string match -v -- '-*' $words[3..-1]\n"
      "end\n"
      "function __sherd_names\n"
      "  set -l places (__sherd_places)\n"
      "  test (count $places) -ge 1; and sherd inspect --names $places[1] 2>/dev/null\n"
      "end\n"
      "function __sherd_at\n"
      "  __fish_seen_subcommand_from $argv[1]; and test (count (__sherd_places)) -eq $argv[2]\n"
      "end\n"
      "complete -c sherd -f\n";
  for (const VerbDescription& one : all) {
    const std::string name = one.verb.name;
    text +=
        fmt::format("complete -c sherd -n __fish_use_subcommand -a {} -d '{}'\n", name, fish_text(one.verb.summary));
    for (const OptionDescription& option : one.options) {
      text += fmt::format("complete -c sherd -n '__fish_seen_subcommand_from {}'", name);
      for (const std::string& flag : option.names) {
        text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      }
      if (!option.word.empty()) text += fish_action(option);
      text += fmt::format(" -d '{}'\n", fish_text(option.help));
    }
    for (size_t i = 0; i < one.places.size(); ++i) {
      // Behind the verb no option asks for the word: -f instead of -x.
      std::string action = fish_action(one.places[i]);
      if (action.starts_with(" -r")) action = action.substr(3);
      if (action.starts_with(" -x")) action[2] = 'f';
      text += fmt::format("complete -c sherd -n '__sherd_at {} {}'{}\n", name, i, action);
    }
  }
  return text;
}

}  // namespace

int completion(const Verb& verb, const Arguments& arguments) {
  std::string shell;
  CLI::App parser(verb.summary);
  make_parser(parser, verb, kExamples);
  parser.add_option("shell", shell, "whose completion is printed")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  if (const auto code = parse(parser, verb, arguments)) return *code;
  const std::vector<VerbDescription> all = describe_all();
  fmt::print("{}", shell == "bash" ? bash(all) : shell == "zsh" ? zsh(all) : fish(all));
  return kOk;
}

}  // namespace sherd::tools
