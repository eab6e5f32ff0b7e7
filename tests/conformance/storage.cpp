#include "conformance/storage.h"

namespace sherd::testing {

std::string read_all(const Storage& storage, const std::string& path) {
  const auto file = storage.open(path);
  std::string text(static_cast<size_t>(file->size()), '?');
  const ReadRequest request{0, bytes_of(text)};
  file->read({&request, 1});
  return text;
}

void write_all(Draft& draft, const std::string& name, const std::string& text) {
  const auto writer = draft.create(name, static_cast<int64_t>(text.size()));
  writer->write(0, bytes_of(text));
  writer->finish();
}

void save(Storage& storage, const std::string& folder, const std::string& id, const std::string& text) {
  const auto draft = storage.draft(folder, id);
  std::string ten;
  for (int i = 0; i < 10; ++i) ten += text;
  write_all(*draft, "data-" + id, ten);
  write_all(*draft, "last", text);
  draft->commit("last");
}

std::string pattern(size_t size, size_t seed) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i + seed) * 2654435761U >> 13);
  return text;
}

}  // namespace sherd::testing
