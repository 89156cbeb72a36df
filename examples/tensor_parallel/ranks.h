#pragma once

#include "shardwright/comm/comm.h"

/// What follows the checkpoint on the command line, for people.
extern const char* const kRankArguments;
/// The processes of this job. arguments: what follows the checkpoint.
shardwright::Result<std::unique_ptr<shardwright::Comm>> open_ranks(int count, char** arguments);
