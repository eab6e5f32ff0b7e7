#include "stored/chosen.h"

#include <utility>

namespace sherd::stored {

format::Value kept_beside(const format::OrderedPlace& place, const std::function<bool(const format::Value&)>& fits) {
  const auto* attributes = place.beside.as<format::Dict>();
  if (attributes == nullptr) return fits(place.beside) ? place.beside : format::Value();
  format::Dict kept = *attributes;
  std::erase_if(kept.items, [&](const auto& item) { return !fits(item.first) || !fits(item.second); });
  return kept.items.empty() ? format::Value() : format::Value(std::move(kept));
}

}  // namespace sherd::stored
