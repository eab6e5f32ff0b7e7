#include <algorithm>

#include "sherd/pipeline.h"

namespace sherd {

std::vector<PipelineAction> schedule_actions(Schedule schedule, int64_t stages, int64_t stage, int64_t microbatches) {
  using Kind = PipelineAction::Kind;
  // How far the forwards are ahead of the backwards.
  const int64_t ahead = schedule == Schedule::GPipe ? microbatches : std::min(microbatches, stages - stage);
  std::vector<PipelineAction> actions;
  for (int64_t i = 0; i < microbatches; ++i) {
    actions.push_back({Kind::forward, i});
    if (i + 1 >= ahead) actions.push_back({Kind::backward, i + 1 - ahead});
  }
  for (int64_t i = microbatches + 1 - ahead; i < microbatches; ++i) actions.push_back({Kind::backward, i});
  return actions;
}

}  // namespace sherd
