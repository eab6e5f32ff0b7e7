#pragma once
#include <stdexcept>
#include <system_error>
#include <utility>

#include "sherd/damage.h"
#include "sherd/storage.h"

namespace sherd::stored {

/// What `work` throws because of a checkpoint's bytes and files, thrown as DamagedCheckpoint with the same text: for
/// work on a checkpoint that was found. A storage that fails, or a system that lacks something, is no damage.
template <class Work>
decltype(auto) as_damage(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const StorageFailure&) {
    throw;
  } catch (const std::system_error&) {
    throw;
  } catch (const std::invalid_argument& error) {
    throw DamagedCheckpoint(error.what());
  } catch (const std::runtime_error& error) {
    throw DamagedCheckpoint(error.what());
  }
}

}  // namespace sherd::stored
