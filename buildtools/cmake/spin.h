/* Lets ggml's threads give way while they wait for each other.

   ggml's own thread pool waits in a loop of pause instructions. That is fastest while every thread has a core of its
   own. When there are fewer cores than threads (other processes, a container's quota), the thread that is waited for
   doesn't run until the waiting ones have used up their time slices, at every barrier of every token. So a thread that
   has paused for some microseconds offers its core to others; where nobody wants it, that costs nothing to speak of.

   This file is put in front of ggml-cpu.c by the compiler's -include; the tree itself isn't edited. There the function
   ggml_thread_cpu_relax is defined with (void) and called with (): by this the macro tells one from the other. */
#ifndef LLAMACY_SPIN_H
#define LLAMACY_SPIN_H

#include <sched.h>

static inline void llamacy_plain_relax(void);

static inline void llamacy_relax(void) {
    static __thread unsigned int pauses;
    llamacy_plain_relax();
    if ((++pauses & 127) == 0) {
        sched_yield();
    }
}

#define LLAMACY_JOIN(a, b) a##b
#define ggml_thread_cpu_relax(argument) LLAMACY_JOIN(LLAMACY_RELAX_, argument)
#define LLAMACY_RELAX_void llamacy_plain_relax(void)
#define LLAMACY_RELAX_ llamacy_relax()

#endif
