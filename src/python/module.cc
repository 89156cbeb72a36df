#include "python/bindings.h"
#include "python/errors.h"

NB_MODULE(_core, module) {
  using namespace shardwright::python;
  module.doc() = "The engine of shardwright. Private: use the package.";
  module.attr("version") = SHARDWRIGHT_VERSION;
  bind_errors(module);
  bind_checkpoint(module);
  bind_ranks(module);
  bind_transfer(module);
  bind_jobs(module);
  bind_manager(module);
}
