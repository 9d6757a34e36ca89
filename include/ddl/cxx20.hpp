#pragma once

#if __cplusplus < 202002L
#error \
    "ddl's C++ headers need C++20 (-std=c++20). From older C++, include ddl/ddl.h, the C API, and link ddl::c."
#endif
