#ifndef DDL_VERSION_H
#define DDL_VERSION_H

/** @file
 * The version of these headers. A program that was compiled with older headers of the same DDL_VERSION_MAJOR
 * runs with a newer libddl_c and libddl_mpi. The C++ library is static: its programs are compiled with its
 * own headers. A function is marked deprecated for one minor version before it is removed. */

/** Major version. */
#define DDL_VERSION_MAJOR 0
/** Minor version. */
#define DDL_VERSION_MINOR 1
/** Patch version. */
#define DDL_VERSION_PATCH 0

#endif
