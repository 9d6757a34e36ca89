#pragma once

#include "collectives/engine/driver.hpp"

namespace ddl::collectives {

template <typename F>
void Driver::each_awaited(const OperationState& operation, F&& f) const {
  const PreparedProgram& program = operation.program();
  for (std::uint32_t i = 0; i < program.tasks().size(); ++i) {
    const Task& task = program.tasks()[i];
    if (task.kind == Task::Kind::post && operation.posts[i].is_out) f(task.peer, task, "not read");
    const std::uint32_t inputs = task.inputs_end - task.inputs_begin;
    if (inputs == 0 || operation.missing[i] == 0 || operation.missing[i] > inputs) continue;
    for (std::uint32_t k = task.inputs_begin; k < task.inputs_end; ++k) {
      if (operation.arrivals[k].data == nullptr) f(program.inputs()[k].peer, task, "nothing has come of");
    }
  }
  for (const std::uint32_t index : operation.transferring) {
    const Task& task = program.tasks()[index];
    f(task.peer, task, task.kind == Task::Kind::net_send ? "not taken" : "not received");
  }
}

}  // namespace ddl::collectives
