/// The parts of the extension module shardwright._core. What users see is in python/shardwright; this is what it stands on: names
/// are ids, arrays are addresses, sizes are bytes, options are all given.
#pragma once

#include <nanobind/nanobind.h>

namespace shardwright::python {

void bind_checkpoint(nanobind::module_& module);  ///< Checkpoint, open, dtypes, parse_size
void bind_transfer(nanobind::module_& module);    ///< read, write, arena, dlpack
void bind_ranks(nanobind::module_& module);       ///< Comm, meet_in_directory, comm_of_store, relayout
void bind_jobs(nanobind::module_& module);        ///< copy, verify, diff, hash, reindex, statistics
void bind_manager(nanobind::module_& module);     ///< Manager, steps, forget, prune, pin, find_step

}  // namespace shardwright::python
