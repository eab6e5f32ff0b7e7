#include "format/digest_functions.h"

namespace sherd::format {

const DigestFunctions* avx2_digest_functions() { return nullptr; }

}  // namespace sherd::format
