#include <fmt/format.h>

#include "checkpoint/saver.h"
#include "comm/errors.h"
#include "sherd/checkpoint.h"
#include "sherd/world.h"

namespace sherd {

SaveResult save(const StateDict& state, const std::string& path, const SaveOptions& options) {
  const Group group = options.group ? *options.group : current_world().group();
  detail::Saver saver(group, path, options);
  saver.plan(state);
  return saver.write(group);
}

}  // namespace sherd
