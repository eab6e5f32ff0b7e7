#include "stored/merge_metadata.h"

#include <map>
#include <stdexcept>

#include "sherd/error.h"

namespace sherd::stored {

void merge_metadata(format::Metadata& into, const format::Metadata& other, const std::string& operation) {
  std::vector<int32_t> files;
  for (const std::string& file : other.files) files.push_back(into.file_number(file));
  const auto transforms = static_cast<int32_t>(into.transforms.size());
  into.transforms.insert(into.transforms.end(), other.transforms.begin(), other.transforms.end());
  const auto moved = [&](format::Place place) {
    if (place.file >= 0) place.file = files[static_cast<size_t>(place.file)];
    if (place.transforms >= 0) place.transforms += transforms;
    return place;
  };
  std::map<std::string_view, size_t> known;
  for (size_t i = 0; i < into.entries.size(); ++i) known[into.entries[i].name] = i;
  for (const format::MetadataEntry& entry : other.entries) {
    const auto found = known.find(entry.name);
    if (found == known.end()) {
      into.entries.push_back(entry);
      std::visit(
          [&](auto& content) {
            if constexpr (requires { content.places; }) {
              for (format::Place& place : content.places) place = moved(place);
            } else {
              content.place = moved(content.place);
            }
          },
          into.entries.back().content);
      continue;
    }
    auto* target = std::get_if<format::TensorEntry>(&into.entries[found->second].content);
    const auto* source = std::get_if<format::TensorEntry>(&entry.content);
    if (target == nullptr || source == nullptr) continue;
    if (target->size != source->size || target->dtype != source->dtype) {
      throw std::invalid_argument(ErrorText(operation, "the ranks' metadata tell different things of one tensor")
                                      .fact("tensor", entry.name)
                                      .fact("sizes", to_string(target->size) + " and " + to_string(source->size))
                                      .help("files of one save alone in the folder"));
    }
    for (size_t i = 0; i < source->chunk_count(); ++i) {
      const Box box = source->box(i);
      bool there = false;
      for (size_t j = 0; j < target->chunk_count() && !there; ++j) there = target->box(j) == box;
      if (!there) target->add(box.offset, box.size, moved(source->places[i]));
    }
  }
  if (into.paths && other.paths) {
    for (const auto& path : *other.paths) {
      if (!known.contains(path.first)) into.paths->push_back(path);
    }
  }
}

}  // namespace sherd::stored
