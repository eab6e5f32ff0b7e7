#pragma once
// How the GPT lies on a mesh of one axis when it serves: attention cut by heads, its cache with them, the MLP by
// columns.

#include <string>

#include "cached_gpt.h"
#include "sherd/dtensor.h"
#include "sherd/parallel.h"

inline sherd::Placements serving_placements(const std::string& name, const at::Tensor&) {
  const auto in = [&](std::initializer_list<const char*> layers) {
    for (const char* layer : layers) {
      if (name.find("." + std::string(layer) + ".") != std::string::npos) return true;
    }
    return false;
  };
  if (in({"query", "key", "value", "up"})) return {sherd::Shard(0)};
  if (in({"out", "down"}) && name.ends_with("weight")) return {sherd::Shard(1)};
  return {sherd::Replicate()};
}

/// Each rank keeps the keys and values of its own heads.
inline std::vector<KeyValueCache> sharded_cache(const CachedGpt& model, int64_t batch, const sherd::DeviceMesh& mesh,
                                                at::ScalarType dtype) {
  return model->make_cache(batch,
                           [&](at::IntArrayRef shape) { return sherd::zeros(shape, mesh, {sherd::Shard(1)}, dtype); });
}
