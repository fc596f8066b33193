//! Executions of programs, and the arguments of those that reached a peak or were refused a request.

use super::{ActiveExecution, TraceAnalyzer};
use crate::analysis::devices::DeviceAnalysis;
use crate::analysis::facts::leaks::ProgramCall;
use crate::analysis::failure::EventContext;
use crate::analysis::scratch::ScratchChecks;
use crate::error::Result;
use crate::trace::TextId;

/// Executions inside executions; more than any program nests callbacks.
const MAX_DEPTH: usize = 1024;

impl TraceAnalyzer {
    pub(super) fn on_begin(&mut self, program: u32, site: TextId) -> Result<()> {
        let entry = self.check_consistent(self.programs.entry_for(program))?;
        if self.active.len() == MAX_DEPTH {
            return self.invalid_event("executions are nested too deeply");
        }
        self.executions += 1;
        let next_allocation = self.replay.allocations();
        self.active.push(ActiveExecution {
            entry,
            site,
            first_allocation: next_allocation,
            checks: ScratchChecks::default(),
        });
        self.last_entry = Some(entry);
        let event = self.replay.events() - 1;
        let is_step = self.programs.on_call(entry, event);
        if is_step {
            for device in &mut self.devices {
                device.live_at_step.capture(next_allocation);
            }
        }
        let call = ProgramCall {
            entry,
            is_likeliest: is_step,
            is_of_training: self.programs.may_be_step(entry),
            is_first: self.programs.calls(entry) == 1,
            event,
        };
        self.leaks.on_execution(call, |entry| self.programs.rank(entry));
        self.programs.set_steady_state(entry, &self.devices);
        Ok(())
    }

    pub(super) fn on_end(&mut self) -> Result<()> {
        let Some(execution) = self.active.pop() else {
            return self.invalid_event("an execution ends that did not start");
        };
        let levels = self.devices.iter().map(DeviceAnalysis::in_use_bytes);
        self.programs.on_end(execution.entry, self.replay.events(), levels);
        Ok(())
    }

    /// Records an argument of the active execution, where that reached a peak, was refused a request, or is one of
    /// the first of a program that computes gradients.
    pub(super) fn on_argument(&mut self, parameter: u32, allocation: u64) -> Result<()> {
        let Some(execution) = self.active.last() else {
            return self.invalid_event("an argument outside an execution");
        };
        let Some(block) = self.replay.live_block(allocation) else {
            return self.invalid_event("an argument refers to no allocation");
        };
        let device = block.device;
        self.roles.on_argument(execution.entry as u32, parameter, block);
        let is_active = |context: &EventContext| {
            context.entry == Some(execution.entry)
                && context.first_allocation == execution.first_allocation
        };
        let state = &mut self.devices[device as usize];
        let mut has_room = state.add_argument_at_peak(is_active, parameter, allocation);
        if let Some(refused) = self.refusals.first()
            && refused.device == device
            && is_active(&refused.context)
        {
            let arguments = &mut self.arguments_at_denial;
            has_room &= arguments.add(&refused.context, parameter, allocation);
        }
        if !has_room {
            return self.invalid_event("the number of arguments of an execution is out of range");
        }
        Ok(())
    }
}
