/// Options and results of jobs, to and from dictionaries of Python.
#pragma once

#include <nanobind/nanobind.h>

#include "shardwright/engine/jobs.h"

namespace shardwright::python {

/// Fields as CopyRequest names them; those that are missing or None keep their defaults. Throws for fields of the wrong type.
CopyRequest copy_request_of(const nanobind::dict& fields);
nanobind::dict summary_of(const CopySummary& summary);

}  // namespace shardwright::python
