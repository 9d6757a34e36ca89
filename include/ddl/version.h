#ifndef DDL_VERSION_H
#define DDL_VERSION_H

/** The version of these headers. What is compiled with an older header of one DDL_VERSION_MAJOR runs with a
 * newer libddl_c and libddl_mpi; the C++ library is static, and is compiled with its headers. Functions that
 * are to go are marked deprecated for one minor version first. */
#define DDL_VERSION_MAJOR 0
#define DDL_VERSION_MINOR 1
#define DDL_VERSION_PATCH 0

#endif
