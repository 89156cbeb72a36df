#include "cli/interrupts.h"

#include <csignal>
#include <initializer_list>

namespace shardwright::cli {
namespace {

volatile std::sig_atomic_t caught = 0;

extern "C" void on_signal(int) { caught = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigemptyset(&action.sa_mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup and background jobs ignore theirs
  }
}

bool interrupted() { return caught != 0; }

}  // namespace shardwright::cli
