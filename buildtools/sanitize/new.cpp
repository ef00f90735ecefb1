// Operators new and delete for runs under AddressSanitizer: they throw std::bad_alloc when memory is refused, as C++
// says. AddressSanitizer's own end the process there, and llama.cpp relies on the exception. The memory still comes from
// the sanitizer's malloc, so everything but mismatched new and free is found as before.

#include <cstdlib>
#include <new>

namespace {

void * allocate(std::size_t size) {
    void * memory = std::malloc(size ? size : 1);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

void * allocate_aligned(std::size_t size, std::align_val_t alignment) {
    void * memory = nullptr;
    if (posix_memalign(&memory, static_cast<std::size_t>(alignment), size ? size : 1) != 0) {
        throw std::bad_alloc();
    }
    return memory;
}

}  // namespace

void * operator new(std::size_t size) { return allocate(size); }
void * operator new[](std::size_t size) { return allocate(size); }
void * operator new(std::size_t size, const std::nothrow_t &) noexcept { return std::malloc(size ? size : 1); }
void * operator new[](std::size_t size, const std::nothrow_t &) noexcept { return std::malloc(size ? size : 1); }
void * operator new(std::size_t size, std::align_val_t alignment) { return allocate_aligned(size, alignment); }
void * operator new[](std::size_t size, std::align_val_t alignment) { return allocate_aligned(size, alignment); }

void operator delete(void * memory) noexcept { std::free(memory); }
void operator delete[](void * memory) noexcept { std::free(memory); }
void operator delete(void * memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void * memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void * memory, const std::nothrow_t &) noexcept { std::free(memory); }
void operator delete[](void * memory, const std::nothrow_t &) noexcept { std::free(memory); }
void operator delete(void * memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void * memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void * memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void * memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
