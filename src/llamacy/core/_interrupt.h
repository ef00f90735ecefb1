// Ctrl-C during a long native call.
//
// Python only notes a signal and acts on it when bytecode runs again. While the main thread is inside llama_decode(),
// nothing runs, so a C handler is put in front of Python's: it raises the abort flag of the running context (polled by
// ggml between two graph nodes) and then calls the handler that was there, so that Python notes the signal as usual.
#ifndef LLAMACY_INTERRUPT_H
#define LLAMACY_INTERRUPT_H

#include <signal.h>

// what the handler writes to the flag; abort() writes another number
#define LLAMACY_INTERRUPTED 2

#ifdef _WIN32

static inline int  llamacy_interrupt_begin(volatile int * flag) { (void) flag; return 0; }
static inline void llamacy_interrupt_end(void) {}

#else

static volatile int * volatile llamacy_interrupt_flag = 0;
static struct sigaction        llamacy_interrupt_previous;

static void llamacy_interrupt_handler(int signum, siginfo_t * info, void * context) {
    volatile int * flag = llamacy_interrupt_flag;
    if (flag && *flag == 0) {
        *flag = LLAMACY_INTERRUPTED;
    }
    if (llamacy_interrupt_previous.sa_flags & SA_SIGINFO) {
        llamacy_interrupt_previous.sa_sigaction(signum, info, context);
    } else if (llamacy_interrupt_previous.sa_handler != SIG_DFL && llamacy_interrupt_previous.sa_handler != SIG_IGN) {
        llamacy_interrupt_previous.sa_handler(signum);
    }
}

// Returns 1 when the handler was put in place; it is left alone where SIGINT is ignored or has its default action.
static inline int llamacy_interrupt_begin(volatile int * flag) {
    struct sigaction action;
    if (llamacy_interrupt_flag || sigaction(SIGINT, 0, &llamacy_interrupt_previous) != 0) {
        return 0;
    }
    if (!(llamacy_interrupt_previous.sa_flags & SA_SIGINFO) &&
        (llamacy_interrupt_previous.sa_handler == SIG_DFL || llamacy_interrupt_previous.sa_handler == SIG_IGN)) {
        return 0;
    }
    action              = llamacy_interrupt_previous;
    action.sa_flags    |= SA_SIGINFO;
    action.sa_sigaction = llamacy_interrupt_handler;
    llamacy_interrupt_flag = flag;
    if (sigaction(SIGINT, &action, 0) != 0) {
        llamacy_interrupt_flag = 0;
        return 0;
    }
    return 1;
}

static inline void llamacy_interrupt_end(void) {
    sigaction(SIGINT, &llamacy_interrupt_previous, 0);
    llamacy_interrupt_flag = 0;
}

#endif

#endif  // LLAMACY_INTERRUPT_H
