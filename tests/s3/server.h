#pragma once
// The store of server.py, started once for all tests of a program.

#include <memory>
#include <string>

#include "sherd/storage.h"

namespace sherd::testing {

enum class S3Door { plain, faulty, closed };

/// The options for a client of the server.
S3Options s3_options(S3Door door = S3Door::plain);
/// Why there is no server; empty where there is one.
const std::string& s3_missing();

/// A folder of the bucket that no other test has.
std::shared_ptr<const std::string> s3_root();

}  // namespace sherd::testing
