#pragma once
#include "outcome.h"
#include "sherd/report.h"

/// The run as a page: curves, pictures, what was sent, memory.
sherd::Report make_page(const Outcome& outcome);
