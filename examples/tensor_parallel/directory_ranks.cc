// Plain processes that share a directory: start one with each rank.
#include <cstdlib>

#include "ranks.h"

const char* const kRankArguments = "DIRECTORY RANK RANKS";

shardwright::Result<std::unique_ptr<shardwright::Comm>> open_ranks(int count, char** arguments) {
  if (count != 3)
    return shardwright::fail(shardwright::Code::kInvalidArgument, "a directory, a rank and their number are needed");
  return shardwright::meet_in_directory(arguments[0], std::atoi(arguments[1]), std::atoi(arguments[2]),
                                        shardwright::deadline_in(std::chrono::seconds(60)));
}
