#pragma once
// SIGTERM and SIGINT as requests: noticed between two steps, by all ranks at the same one.

#include "sherd/group.h"

/// From now on the two signals do not end the program, but are kept.
void keep_stop_signals();

/// The signal that any rank of the group has got, 0 for none: the same answer on every rank. All of them call it.
int stop_signal_of(const sherd::Group& group);
