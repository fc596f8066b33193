//! The values of what a call of a program returns: those of the program as a whole if it can be evaluated, else
//! those of its slices.

use std::ops::Range;
use std::sync::Arc;

use vramfit_model::run_config::Fill;
use vramfit_model::trace::Event;

use crate::buffer::host_exchange;
use crate::buffer::value::{EvalResult, LazyCall, MAX_DEPTH, MAX_TINY_BYTES, Value};
use crate::compile::compiled::CompiledProgram;
use crate::compile::host_program::HostProgram;
use crate::device::machine;
use crate::hooks;
use crate::pjrt::status::PjrtResult;

/// Returns the values of the outputs of a call on each of its devices, of those ids, from the values of
/// the inputs there. Fails when a user's function that it calls fails, as on a GPU.
pub(crate) fn outputs_per_device(
    program: &Arc<CompiledProgram>,
    mut inputs: Vec<Vec<Value>>,
    device_ids: &[u32],
) -> PjrtResult<Vec<Vec<Value>>> {
    let rows = inputs.len();
    let count = program.program.outputs.len();
    let devices = program.host_program.devices;
    if rows == 0 {
        // All devices of the call are those of other processes.
        return Ok(Vec::new());
    }
    if devices == 1 {
        let outputs = flat_outputs(program, inputs.swap_remove(0))?;
        return Ok(vec![outputs; rows]);
    }
    let mut places: Vec<usize> = (0..rows).collect();
    let outputs = if devices == rows {
        flat_outputs(program, inputs.concat())?
    // Otherwise other processes have the rest of the devices.
    } else if let Some(global) = host_exchange::exchange_inputs(program, &inputs, device_ids) {
        places = global.own;
        match global.are_assumed {
            true => assumed_outputs(program, global.values, global.assumption),
            false => flat_outputs(program, global.values)?,
        }
    } else {
        // They call back for those.
        run_callbacks(program, rows);
        sliced_outputs(program, &inputs.concat(), rows)
    };
    let places = places.into_iter();
    Ok(places.map(|place| outputs[place * count..(place + 1) * count].to_vec()).collect())
}

/// Returns the values of the outputs, lazy if all inputs are known, else those of slices; both lists
/// device by device.
fn flat_outputs(program: &Arc<CompiledProgram>, inputs: Vec<Value>) -> PjrtResult<Vec<Value>> {
    let host_program = &program.host_program;
    let count = host_program.devices * host_program.outputs.len();
    let all_devices = program.program.options.devices.len();
    if inputs.iter().any(Value::is_unknown) {
        let returned = call_functions(program, &inputs, all_devices)?;
        return Ok(with_returned(placeholder_outputs(program, inputs), returned));
    }
    let depth = depth_of(&inputs);
    let is_too_deep = depth >= MAX_DEPTH && !host_program.fits(MAX_TINY_BYTES);
    if !host_program.can_evaluate() || (is_too_deep && !program.has_side_effects) {
        let returned = call_functions(program, &inputs, all_devices)?;
        let outputs = sliced_outputs(program, &inputs, host_program.devices);
        return Ok(with_returned(outputs, returned));
    }
    let lazy_call = LazyCall::whole(program, inputs, depth, None);
    if depth >= MAX_DEPTH || program.has_side_effects {
        match lazy_call.eval_result() {
            EvalResult::Known(_) | EvalResult::Assumed(_) => {}
            EvalResult::Raised(error) => return Err(error.clone()),
            EvalResult::Sliced(values) => {
                run_callbacks(program, all_devices);
                return Ok(values.clone());
            }
            EvalResult::Unknown => {
                run_callbacks(program, all_devices);
                return Ok(vec![Value::Unknown; count]);
            }
        }
    }
    Ok((0..count).map(|output| Value::Lazy(Arc::clone(&lazy_call), output)).collect())
}

/// Returns the depth of a call with those inputs.
fn depth_of(inputs: &[Value]) -> u32 {
    1 + inputs.iter().map(Value::depth).max().unwrap_or(0)
}

/// Returns the values of a call that is not evaluated as a whole, on this many devices in turn: those of its
/// slices whose inputs are known.
pub(super) fn sliced_outputs(
    program: &Arc<CompiledProgram>,
    inputs: &[Value],
    devices: usize,
) -> Vec<Value> {
    let count = program.program.outputs.len();
    let mut outputs = vec![Value::Unknown; devices * count];
    if !program.has_slices {
        return outputs;
    }
    let parameters = program.program.parameters.len();
    for slice in program.slices() {
        let together = slice.program.devices;
        // How often it is run, and how many devices have the same values.
        let (runs, copies) = if together > 1 {
            // Other processes have the rest of the devices.
            if together != devices {
                continue;
            }
            (1, 1)
        } else if program.program.options.replicas == 1 {
            // Partitions have the same values of what is not sharded.
            (1, devices)
        } else {
            (devices, 1)
        };
        for first in 0..runs {
            let members = first..first + together;
            let inputs: Option<Vec<Value>> =
                places_on(members.clone(), &slice.parameters, parameters)
                    .map(|place| inputs.get(place).cloned())
                    .collect();
            let Some(values) = inputs.and_then(|inputs| slice_values(&slice.program, inputs))
            else {
                continue;
            };
            for (value, place) in values.into_iter().zip(places_on(members, &slice.outputs, count))
            {
                for copy in 0..copies {
                    outputs[place + copy * count] = value.clone();
                }
            }
        }
    }
    outputs
}

/// Returns where some of the `count` values of each device are in the list of those of all devices in turn.
fn places_on(devices: Range<usize>, chosen: &[usize], count: usize) -> impl Iterator<Item = usize> {
    devices.flat_map(move |device| chosen.iter().map(move |at| device * count + at))
}

/// Returns the values of a call of a slice, device by device; `None` if they are unknown.
fn slice_values(program: &Arc<HostProgram>, inputs: Vec<Value>) -> Option<Vec<Value>> {
    let depth = depth_of(&inputs);
    if !program.can_evaluate()
        || inputs.iter().any(Value::is_unknown)
        || (depth >= MAX_DEPTH && !program.fits(MAX_TINY_BYTES))
    {
        return None;
    }
    let lazy_call = LazyCall::new(Arc::clone(program), inputs, depth);
    if depth >= MAX_DEPTH && !matches!(lazy_call.eval_result(), EvalResult::Known(_)) {
        return None;
    }
    let outputs = 0..program.devices * program.outputs.len();
    Some(outputs.map(|at| Value::Lazy(Arc::clone(&lazy_call), at)).collect())
}

/// Returns the values of a call with unknown arguments: unknown, except for predicates, slices, and what follows from
/// placeholders alone.
fn placeholder_outputs(program: &Arc<CompiledProgram>, inputs: Vec<Value>) -> Vec<Value> {
    let host_program = &program.host_program;
    let has_numbers = |value: &Value| value.is_placeholder() || !value.is_unknown();
    // Callbacks have been called by now.
    let is_tiny = host_program.can_evaluate()
        && host_program.fits(MAX_TINY_BYTES)
        && !program.has_side_effects;
    if is_tiny && inputs.iter().all(has_numbers) {
        return assumed_outputs(program, inputs, None);
    }
    if !host_program.is_predicate {
        return sliced_outputs(program, &inputs, host_program.devices);
    }
    let depth = depth_of(&inputs);
    if depth >= MAX_DEPTH {
        return vec![Value::Unknown; host_program.devices * host_program.outputs.len()];
    }
    make_placeholders(&LazyCall::new(Arc::clone(host_program), inputs, depth), host_program)
}

/// Returns the values of a call with arguments that are taken to be those numbers; `assumption` as for
/// [`LazyCall::whole`].
fn assumed_outputs(
    program: &Arc<CompiledProgram>,
    inputs: Vec<Value>,
    assumption: Option<String>,
) -> Vec<Value> {
    let depth = depth_of(&inputs);
    let lazy_call = LazyCall::whole(program, inputs, depth, assumption);
    if depth >= MAX_DEPTH {
        lazy_call.eval_result();
    }
    make_placeholders(&lazy_call, &program.host_program)
}

/// Returns the outputs of a call of a program as placeholders.
fn make_placeholders(lazy_call: &Arc<LazyCall>, program: &HostProgram) -> Vec<Value> {
    let count = program.devices * program.outputs.len();
    (0..count).map(|output| Value::Placeholder(Arc::clone(lazy_call), output)).collect()
}

/// Calls the functions of Python that a program calls, whose values are not computed as a whole: with their arguments, if
/// those are known of all of them, else as [`run_callbacks`] does. Returns outputs that need what they return, by their
/// numbers.
fn call_functions(
    program: &Arc<CompiledProgram>,
    inputs: &[Value],
    devices: usize,
) -> PjrtResult<Vec<(usize, Value)>> {
    if let Some(slice) = program.calling_slice() {
        let needed: Option<Vec<Value>> =
            slice.parameters.iter().map(|at| inputs.get(*at).cloned()).collect();
        let known = needed.filter(|needed| !needed.iter().any(Value::is_unknown));
        if let Some(needed) = known.filter(|_| slice.program.can_evaluate()) {
            let depth = depth_of(&needed);
            let lazy_call = LazyCall::new(Arc::clone(&slice.program), needed, depth);
            match lazy_call.eval_result() {
                EvalResult::Known(_) => {
                    let outputs = slice.outputs.iter().enumerate();
                    let values = outputs
                        .map(|(at, output)| (*output, Value::Lazy(Arc::clone(&lazy_call), at)));
                    return Ok(values.collect());
                }
                EvalResult::Raised(error) => return Err(error.clone()),
                // What was called by then is not called again.
                EvalResult::Assumed(_) | EvalResult::Sliced(_) | EvalResult::Unknown => {}
            }
        }
    }
    run_callbacks(program, devices);
    Ok(Vec::new())
}

/// Returns the outputs with those that functions of Python have returned.
fn with_returned(mut outputs: Vec<Value>, returned: Vec<(usize, Value)>) -> Vec<Value> {
    for (output, value) in returned {
        if let Some(place) = outputs.get_mut(output) {
            *place = value;
        }
    }
    outputs
}

/// Calls the Python callbacks of a program in an execution whose values are not computed, for this many devices: a
/// script may wait for their effects. The outcome of each is recorded.
fn run_callbacks(program: &Arc<CompiledProgram>, devices: usize) {
    let (Some(hooks), Some(machine)) = (hooks::get(), machine::get()) else {
        return;
    };
    let code = &program.host_program.code;
    if !program.has_side_effects || code.is_empty() {
        return;
    }
    let done = hooks.run_callbacks(program.number, code, devices);
    let mut session = machine.session();
    for call in done {
        let (site, error) = (session.intern(&call.site), session.intern(&call.error));
        if call.calls > 0 {
            session.record(&Event::Callback {
                site,
                calls: call.calls,
                errors: call.errors,
                error,
            });
        }
        if let Some(parameter) = &call.deciding_parameter {
            let value = if machine.header.run.fill == Fill::Zeros { "0" } else { "1" };
            let (expression, value) = (session.intern(parameter), session.intern(value));
            let bytes = call.argument_bytes;
            session.record(&Event::DecisiveRead { site, bytes, expression, value });
        }
        if let Some((calls, reason)) = call.skipped {
            session.record(&Event::CallbackSkipped { site, calls, reason });
        }
    }
}
