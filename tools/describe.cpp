#include "describe.h"

namespace sherd::tools {

std::vector<std::string> OptionDescription::choices() const {
  std::vector<std::string> words;
  if (word.find('|') == std::string::npos) return words;
  for (size_t at = 0; at <= word.size();) {
    const size_t end = std::min(word.find('|', at), word.size());
    words.push_back(word.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

VerbDescription describe(const Verb& verb) {
  VerbDescription description{.verb = verb, .options = {}, .places = {}, .footer = {}};
  const std::function<void(const CLI::App&)> look = [&](const CLI::App& parser) {
    description.footer = parser.get_footer();
    for (const CLI::Option* option : parser.get_options()) {
      OptionDescription one;
      for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
      if (option->get_type_size() != 0) one.word = option->get_type_name();
      one.word = one.word.substr(0, one.word.find(':'));
      one.help = option->get_description();
      one.required = option->get_required();
      (one.names.empty() ? description.places : description.options).push_back(std::move(one));
    }
  };
  Verb watched = verb;
  watched.look = &look;
  verb.run(watched, {});
  return description;
}

std::vector<VerbDescription> describe_all() {
  std::vector<VerbDescription> all;
  for (const VerbGroup& group : verb_groups()) {
    for (const Verb& verb : group.verbs) all.push_back(describe(verb));
  }
  return all;
}

}  // namespace sherd::tools
