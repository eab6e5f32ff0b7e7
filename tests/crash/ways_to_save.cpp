#include "crash/ways_to_save.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sherd/convert.h"
#include "stored/dcp_checkpoint.h"
#include "stored/retention.h"
#include "stored/safetensors_checkpoint.h"

namespace sherd::testing {
namespace {

constexpr int64_t kRows = 10;

// The same with a block that never changes, and is found in a base.
StateDict large_state_of(double number, int ranks) {
  StateDict state{{"constant", torch::ones({(int64_t{1} << 18) + 10})}};  // the first in its file
  for (const auto& [key, value] : state_of(number, ranks)) state[key] = value;
  return state;
}

// Of an object store's folders there may be files before there is a checkpoint, and after.
bool is_there(const StoragePointer& storage, const std::string& path) {
  if (storage->replaces_whole_folders() || !storage->is_folder(path)) return storage->exists(path);
  const std::vector<std::string> names = storage->list(path);
  return stored::DcpCheckpoint::is_in(names) || stored::SafetensorsCheckpoint::is_in(names);
}

// 0 where there is none.
double number_or_none(const StoragePointer& storage, const std::string& path) {
  return is_there(storage, path) ? number_at(storage, path) : 0;
}

std::string step_path(int64_t step) { return kFolder + "/" + stored::step_name(step); }

WayToSave into(const std::string& name, const std::string& path, const SaveOptions& options = {}) {
  const auto save_number = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) {
      SaveOptions with = options;
      with.storage = storage;
      save(state_of(number, ranks), path, with);
    });
  };
  return {name, save_number, [=](const StoragePointer& storage) { return number_or_none(storage, path); }};
}

WayToSave in_background() {
  WayToSave way = into("Async", kPath);
  way.save = [](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) { save_async(state_of(number, ranks), kPath, {.storage = storage}).wait(); });
  };
  return way;
}

WayToSave on_a_base() {
  const std::string base = kFolder + "/base";
  WayToSave way = into("Incremental", kPath);
  way.at_times = base;
  way.save = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World& world) {
      if (number_or_none(storage, base) == 0) save(large_state_of(100, ranks), base, {.storage = storage});
      barrier(world.group());
      const auto result = save(large_state_of(number, ranks), kPath, {.storage = storage, .base = base});
      EXPECT_GT(result.bytes_in_base, 0);
    });
  };
  way.found = [=](const StoragePointer& storage) {
    const double number = number_or_none(storage, kPath);
    EXPECT_TRUE(number == 0 || number_at(storage, base) == 100);
    return number;
  };
  return way;
}

// Written by ranks into one folder, and from there into another by a conversion.
const std::string kSource = kFolder + "/source";
WayToSave converted(const std::string& name, const std::string& path, CheckpointFormat format) {
  WayToSave way = into(name, path);
  way.save = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World& world) {
      save(state_of(number, ranks), kSource, {.storage = storage});
      if (world.rank() == 0) {
        rewrite_checkpoint({kSource}, path,
                           {.format = format, .overwrite = true, .from_storage = storage, .to_storage = storage});
      }
    });
  };
  return way;
}

// One way after the other, to the same path: the odd numbers by the first one.
WayToSave in_turns(const std::string& name, const WayToSave& odd, const WayToSave& even, int before) {
  WayToSave way = odd;
  way.name = name;
  way.before = before;
  way.at_times = kSource;
  way.save = [=](const StoragePointer& storage, int ranks, double number) {
    const bool is_odd = static_cast<int64_t>(number) % 2 == 1;
    (is_odd ? odd : even).save(storage, ranks, number);
  };
  return way;
}

// A run that goes on: it looks for the newest, saves the next step, and removes old ones.
CheckpointManager run_in(const StoragePointer& storage, StateDict& state) {
  CheckpointManager checkpoints(kFolder, {.keep_last = 2, .incremental = true, .storage = storage});
  checkpoints.load_latest(state);
  // An object store has folders that are no checkpoints yet.
  EXPECT_TRUE(checkpoints.warnings().empty() || !storage->replaces_whole_folders());
  return checkpoints;
}

// The number is the step. The first one stays, since the others stand on it.
WayToSave managed(bool async) {
  const auto save_number = [=](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) {
      StateDict state = large_state_of(0, ranks);
      CheckpointManager checkpoints = run_in(storage, state);
      state = large_state_of(number, ranks);
      if (async) {
        checkpoints.save_async(static_cast<int64_t>(number), state);
        checkpoints.wait();
      } else {
        checkpoints.save(static_cast<int64_t>(number), state);
      }
    });
  };
  const auto found = [](const StoragePointer& storage) {
    double newest = 0;
    for (const int64_t step : stored::steps_in(*storage, kFolder)) {
      if (!is_there(storage, step_path(step))) continue;
      newest = number_at(storage, step_path(step));
      EXPECT_EQ(newest, static_cast<double>(step));
    }
    return newest;
  };
  return {async ? "ManagedAsync" : "Managed", save_number, found, 3};
}

// One step is saved again and again; the first time two that stand on it and on each other are saved, too.
WayToSave managed_again() {
  const auto save_number = [](const StoragePointer& storage, int ranks, double number) {
    spawn(ranks, [&](World&) {
      StateDict state = large_state_of(0, ranks);
      CheckpointManager checkpoints = run_in(storage, state);
      checkpoints.save(10, large_state_of(number, ranks));
      if (number == 1) {
        for (const int64_t step : {20, 30}) {
          checkpoints.save(step, large_state_of(static_cast<double>(step), ranks));
        }
      }
    });
  };
  const auto found = [](const StoragePointer& storage) {
    for (const int64_t step : {20, 30}) {
      const double number = number_or_none(storage, step_path(step));
      EXPECT_TRUE(number == 0 || number == static_cast<double>(step));
    }
    return number_or_none(storage, step_path(10));
  };
  return {"ManagedAgain", save_number, found};
}

}  // namespace

StateDict state_of(double number, int ranks) {
  const auto mesh = init_device_mesh("cpu", {ranks});
  const auto x = distribute_tensor(torch::full({kRows, 3}, number), mesh, {Shard(0)}, {.source = std::nullopt});
  return {{"x", x}, {"plain", torch::full({2}, number)}, {"number", number}};
}

double number_at(const StoragePointer& storage, const std::string& path) {
  const StateDict state = load_state_dict(path, {}, {.storage = storage});
  const double number = *state.at("number").number();
  EXPECT_TRUE(state.at("x").tensor()->equal(torch::full({kRows, 3}, number)));
  EXPECT_TRUE(state.at("plain").tensor()->equal(torch::full({2}, number)));
  if (state.contains("constant")) {
    EXPECT_TRUE(state.at("constant").tensor()->eq(1).all().item<bool>());
  }
  return number;
}

void expect_no_leftovers(const WayToSave& way, const StoragePointer& storage) {
  for (const DraftName& draft : storage->drafts_in(kFolder)) EXPECT_EQ(draft.folder, way.at_times);
  EXPECT_TRUE(stored::parts_in(*storage, kFolder).empty());
}

std::vector<WayToSave> ways_to_save() {
  const WayToSave folder = into("Folder", kPath);
  const WayToSave safetensors = into("SafetensorsFolder", kPath, {.format = CheckpointFormat::safetensors});
  const WayToSave model = converted("ConvertedSafetensors", kPath, CheckpointFormat::safetensors);
  return {folder,
          safetensors,
          model,
          into("TorchFile", kPath + ".pt"),
          into("SafetensorsFile", kPath + ".safetensors"),
          into("Compressed", kPath, {.compress = true}),
          converted("ConvertedFolder", kPath, CheckpointFormat::dcp),
          converted("ConvertedTorchFile", kPath + ".pt", CheckpointFormat::torch_save),
          in_background(),
          on_a_base(),
          in_turns("FolderToSafetensors", folder, safetensors, 1),
          in_turns("SafetensorsToFolder", folder, safetensors, 2),
          in_turns("ModelToSafetensors", model, safetensors, 1),
          in_turns("SafetensorsToModel", model, safetensors, 2)};
}

std::vector<WayToSave> ways_to_run() { return {managed(false), managed(true), managed_again()}; }

}  // namespace sherd::testing
