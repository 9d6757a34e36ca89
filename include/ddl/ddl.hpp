#pragma once

#include "ddl/cxx20.hpp"  // first: the rest does not compile without C++20

/// @file
/// The trainer's interface; collectives on devices are in ddl/device.hpp, settings in ddl/options.hpp, the
/// planner in ddl/topology/. See ddl/README.md for the ten lines that make a trainer data-parallel.

#include "ddl/broadcast_parameters.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/communicator.hpp"
#include "ddl/context.hpp"
#include "ddl/data_type.hpp"
#include "ddl/drift_check.hpp"
#include "ddl/error.hpp"
#include "ddl/gradient_buffer.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/learning_rate_scaling.hpp"
#include "ddl/log.hpp"
#include "ddl/parameter.hpp"
#include "ddl/sharded_sampler.hpp"
#include "ddl/shared_buffer.hpp"
#include "ddl/timeline.hpp"
#include "ddl/training_state.hpp"
#include "ddl/work.hpp"
