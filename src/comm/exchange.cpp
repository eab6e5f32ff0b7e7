#include "comm/exchange.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace sherd::detail {

std::vector<std::string> exchange(const Meeting& meeting, const std::string& topic, const std::string& mine) {
  const auto key = [&](int rank) { return topic + "/" + std::to_string(rank); };
  meeting.store->set(key(meeting.rank), std::vector<uint8_t>(mine.begin(), mine.end()));
  std::vector<std::string> keys;
  for (int i = 0; i < meeting.size; ++i) keys.push_back(key(i));
  meeting.store->wait(keys, meeting.timeout);
  std::vector<std::string> texts;
  for (const auto& value : meeting.store->multiGet(keys)) texts.emplace_back(value.begin(), value.end());
  return texts;
}

}  // namespace sherd::detail
