// Sends the reports of all sanitizer runtimes into files. Each runtime calls the function that sets the path by its
// exported name, which leads all calls to the library that was loaded first: log_path then works in one of them only, and
// what the other one finds goes to a stderr that pytest hides.

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>

static int set_report_path(dl_phdr_info * info, size_t, void * path) {
    if (std::strstr(info->dlpi_name, "/libasan.") == nullptr && std::strstr(info->dlpi_name, "/libubsan.") == nullptr) {
        return 0;
    }
    void * library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    void * set = library == nullptr ? nullptr : dlsym(library, "__sanitizer_set_report_path");
    if (set != nullptr) {
        reinterpret_cast<void (*)(const char *)>(set)(static_cast<const char *>(path));
    }
    return 0;
}

__attribute__((constructor)) static void set_report_paths() {
    if (char * path = std::getenv("LLAMACY_SANITIZER_REPORT")) {
        dl_iterate_phdr(set_report_path, path);
    }
}
