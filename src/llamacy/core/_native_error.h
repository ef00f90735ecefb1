// The text of the C++ exception that is being handled.
#ifndef LLAMACY_NATIVE_ERROR_H
#define LLAMACY_NATIVE_ERROR_H

#include <exception>
#include <new>
#include <string>

namespace llamacy {

// Call inside of a catch block only.
inline std::string exception_text(bool & out_of_memory) {
    out_of_memory = false;
    try {
        throw;
    } catch (const std::bad_alloc & error) {
        out_of_memory = true;
        return error.what();
    } catch (const std::exception & error) {
        return error.what();
    } catch (...) {
        return "unknown exception";
    }
}

}  // namespace llamacy

#endif  // LLAMACY_NATIVE_ERROR_H
