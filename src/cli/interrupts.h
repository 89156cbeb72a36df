/// Ctrl-C and termination, asked about instead of happening.
#pragma once

namespace shardwright::cli {

/// From now on the first SIGINT or SIGTERM only makes interrupted() true; the second ends the process at once.
void catch_interrupts();
bool interrupted();

}  // namespace shardwright::cli
