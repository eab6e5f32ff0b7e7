#include "stored/file_plan.h"

namespace sherd::stored {

int64_t length_of(const Piece& piece) {
  if (const auto* text = std::get_if<std::string>(&piece)) return static_cast<int64_t>(text->size());
  if (const auto* elements = std::get_if<Elements>(&piece)) return numel(elements->box) * elements->element_bytes;
  if (const auto* late = std::get_if<LateText>(&piece)) return late->length;
  return std::get<DigestText>(piece).length;
}

void FilePlan::add(Piece piece) {
  size += length_of(piece);
  pieces.push_back(std::move(piece));
}

void FilePlan::align(int64_t alignment) {
  const int64_t missing = (alignment - size % alignment) % alignment;
  if (missing > 0) add(std::string(static_cast<size_t>(missing), '\0'));
}

}  // namespace sherd::stored
