//! Executes programs: no arithmetic, but the same allocations in the same order as XLA's run time.
//! One call runs on several devices; each part of it is a [`DeviceCall`].

use std::ffi::CStr;

use vramfit_model::trace::{Event as LogEvent, TextId};

use crate::buffer::output_values;
use crate::compile::loaded_executable::{self, LoadedExecutable};
use crate::device::machine;
use crate::device::virtual_device::Device;
use crate::execute::device_call::{AllocatedBlocks, DeviceCall};
use crate::execute::program_history;
use crate::execute::step_detector::{self, RunMemory, RunProgress, StepOptions};
use crate::pjrt::abi::executable::{ExecuteOptions, LoadedExecutableExecuteArgs};
use crate::pjrt::args::read_sized;
use crate::pjrt::event;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status};
use crate::session::call_site;
use crate::session::machine_session::Session;
use crate::session::shutdown::RunningExecution;

pub(crate) unsafe fn execute(args: &mut LoadedExecutableExecuteArgs) -> PjrtResult {
    let _running = RunningExecution::start();
    let loaded = loaded_executable::from_raw(args.executable)?;
    if loaded.is_deleted() {
        return Err(Status::invalid_argument("the executable was deleted"));
    }
    let options: ExecuteOptions = read_sized(args.options)
        .unwrap_or_else(crate::pjrt::cuda_plugin::zeroed_struct::<ExecuteOptions>);
    let non_donatable = pointers::list(
        options.non_donatable_input_indices,
        options.num_non_donatable_input_indices,
    );
    let devices = selected_devices(loaded, args)?;
    let calls: Vec<DeviceCall<'_>> = devices
        .iter()
        .enumerate()
        .map(|(row, &(index, device))| {
            DeviceCall::new(loaded, args, row, index, device, non_donatable)
        })
        .collect::<PjrtResult<_>>()?;

    let machine = machine::get().ok_or_else(|| Status::internal("no machine was created"))?;
    let run = &machine.header.run;
    let step_options = StepOptions { limit: run.steps, name: run.step.as_deref() };
    let arguments = calls.first().map(DeviceCall::step_arguments).unwrap_or_default();
    let ordinal = calls.first().map_or(0, DeviceCall::ordinal);
    let mut session = machine.session();
    let execution = program_history::Execution {
        program: loaded.compiled.number,
        name: &loaded.compiled.program.name,
        needed_bytes: loaded.compiled.program.sizes.needed_bytes(),
        backward: loaded.compiled.has_backward,
        arguments: &arguments,
    };
    let memory = SessionMemory { session: &session, ordinal };
    let decision = step_detector::on_execution(&execution, &step_options, &memory);
    for note in &decision.notes {
        session.note(note);
    }
    let mut allocated = Vec::with_capacity(calls.len());
    let mut done = Ok(());
    if decision.is_beyond {
        allocated.resize_with(calls.len(), AllocatedBlocks::default);
    } else {
        let site = user_line(&mut session, &options);
        session.begin_execution(loaded.compiled.number, site);
        let records_arguments = loaded.compiled.records_arguments();
        done = allocate(&calls, records_arguments, &mut session, &mut allocated);
        session.record(&LogEvent::End);
        if done.is_err() && decision.run_progress == RunProgress::Finished {
            step_detector::retract_finish();
        }
    }
    drop(session);
    done?;

    let inputs = calls.iter().map(DeviceCall::values).collect();
    let device_ids: Vec<u32> = devices.iter().map(|(_, device)| device.id).collect();
    let values = output_values::outputs_per_device(&loaded.compiled, inputs, &device_ids)?;
    for (row, ((call, blocks), values)) in calls.iter().zip(allocated).zip(values).enumerate() {
        call.mark_replaced_arguments();
        let outputs = call.finish(&blocks, values, decision.lineage)?;
        let list = args.output_lists.add(row).read();
        for (number, output) in outputs.into_iter().enumerate() {
            list.add(number).write(output.into_raw());
        }
        if !args.device_complete_events.is_null() {
            args.device_complete_events.add(row).write(event::ready(Ok(())));
        }
    }
    step_detector::after_execution(decision.run_progress);
    Ok(())
}

/// Allocates what a call needs on each of its devices, until one refuses. With `records_arguments` those of
/// each are recorded, even if it reaches no peak.
fn allocate(
    calls: &[DeviceCall<'_>],
    records_arguments: bool,
    session: &mut Session,
    allocated: &mut Vec<AllocatedBlocks>,
) -> PjrtResult {
    for call in calls {
        let peak_before = session.peak_bytes(call.ordinal());
        let blocks = call.allocate(session);
        if records_arguments || blocks.is_err() || session.peak_bytes(call.ordinal()) > peak_before
        {
            call.record_arguments(session);
        }
        allocated.push(blocks?);
    }
    Ok(())
}

/// The pools of a session.
struct SessionMemory<'a> {
    session: &'a Session,
    ordinal: u32,
}

impl RunMemory for SessionMemory<'_> {
    fn in_use_bytes(&self) -> u64 {
        self.session.bytes_in_use(self.ordinal)
    }

    fn peaks(&self) -> Vec<u64> {
        self.session.peaks()
    }
}

/// Returns the devices of a call with their index in the program.
unsafe fn selected_devices(
    loaded: &LoadedExecutable,
    args: &LoadedExecutableExecuteArgs,
) -> PjrtResult<Vec<(usize, &'static Device)>> {
    let all = loaded.devices.iter().copied().enumerate();
    if let Some(one) = crate::device::virtual_device::from_raw(args.execute_device) {
        let found: Vec<_> = all.filter(|(_, device)| device.id == one.id).collect();
        return if found.is_empty() {
            Err(Status::invalid_argument("the program does not run on that device"))
        } else {
            Ok(found)
        };
    }
    if args.num_devices != loaded.devices.len() {
        return Err(Status::invalid_argument(format!(
            "Attempted to execute with {} argument lists when local device count is {}",
            args.num_devices,
            loaded.devices.len()
        )));
    }
    Ok(all.collect())
}

/// Returns the user's line from the Python stack that JAX passes with the call, if it is told to.
unsafe fn user_line(session: &mut Session, options: &ExecuteOptions) -> TextId {
    if options.call_location.is_null() {
        return TextId(0);
    }
    call_site::from_stack(CStr::from_ptr(options.call_location), |text| session.intern(text))
}
