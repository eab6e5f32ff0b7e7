#include "layout/json_text.h"

#include <nlohmann/json.hpp>

namespace sherd::detail {

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (const std::string& text : texts) result += (result.size() > 1 ? ", " : "") + json_text(text);
  return result + "]";
}

}  // namespace sherd::detail
