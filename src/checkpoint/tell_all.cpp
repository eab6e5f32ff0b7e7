#include "checkpoint/tell_all.h"

#include <c10/util/Exception.h>

#include <stdexcept>

#include "comm/answers.h"
#include "comm/errors.h"

namespace sherd::detail {

std::vector<std::string> tell_all(const char* operation, const Group& group, const std::function<std::string()>& say) {
  if (group.size() == 1) return {alone(say)};
  return answers_of_all(group, operation, say);
}

std::string alone(const std::function<std::string()>& say) {
  try {
    return say();
  } catch (const c10::Error&) {
    throw;
  } catch (const std::invalid_argument& error) {
    throw_value_error_text(error.what());
  } catch (const std::exception& error) {
    throw c10::Error(error.what(), nullptr);
  }
}

}  // namespace sherd::detail
