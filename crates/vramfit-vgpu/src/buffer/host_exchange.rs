//! Small arguments of a program that runs on the devices of several hosts: the hosts of a dry run, which are run one
//! after the other, tell each other those on their own devices.

use std::hash::{DefaultHasher, Hash, Hasher};

use vramfit_model::program::Shape;

use crate::buffer::host_data::HostData;
use crate::buffer::value::{MAX_TINY_BYTES, Value};
use crate::compile::compiled::CompiledProgram;
use crate::device::machine;
use crate::hooks;

/// The arguments on all devices of a program.
pub(super) struct GlobalInputs {
    /// Of each device of its assignment in turn.
    pub(super) values: Vec<Value>,
    /// The places of this process's devices in the assignment.
    pub(super) own: Vec<usize>,
    /// Whether some are not known.
    pub(super) are_assumed: bool,
    /// The name of the call, where those of another host are taken for those of one that was not run.
    pub(super) assumption: Option<String>,
}

/// Tells the other hosts the arguments of a call on this process's devices, whose ids are `devices`, and returns those
/// on all devices. `None` if the program is not small on each host, or not all of them are known.
pub(super) fn exchange_inputs(
    program: &CompiledProgram,
    inputs: &[Vec<Value>],
    devices: &[u32],
) -> Option<GlobalInputs> {
    let per_host = machine::get()?.header.devices;
    let host_of = |device: u32| device / per_host;
    let this_host = host_of(*devices.first()?);
    let assignment = program.program.options.devices.iter();
    let owners: Vec<u32> = assignment.map(|&device| host_of(device as u32)).collect();
    let own: Vec<usize> = find_places(this_host, &owners).collect();
    let limit = MAX_TINY_BYTES * owners.len() as u64 / per_host as u64;
    let is_small = program.host_program.fits(limit) && !program.has_side_effects;
    // JAX executes on one device alone only what no other takes part in.
    if !is_small || own.len() != inputs.len() {
        return None;
    }
    if program.program.parameters.is_empty() {
        return Some(GlobalInputs {
            values: Vec::new(),
            own,
            are_assumed: false,
            assumption: None,
        });
    }
    let mut hosts = owners.clone();
    hosts.sort_unstable();
    hosts.dedup();
    let own_bytes = concatenate_bytes(inputs.iter().flatten());
    let known =
        hooks::get()?.exchange_inputs(&program_key(program), own_bytes.as_deref(), &hosts)?;
    let mut values = vec![Vec::new(); owners.len()];
    for (host, bytes) in hosts.iter().zip(&known.bytes) {
        let places: Vec<usize> = find_places(*host, &owners).collect();
        let rows = split_by_device(bytes.as_ref()?, &program.host_program.parameters)?;
        if rows.len() != places.len() {
            return None;
        }
        for (place, row) in places.into_iter().zip(rows) {
            values[place] = row;
        }
    }
    let has_placeholders = inputs.iter().flatten().any(Value::is_placeholder);
    let can_evaluate = program.host_program.can_evaluate();
    can_evaluate.then(|| GlobalInputs {
        values: values.concat(),
        own,
        are_assumed: known.assumption.is_some() || has_placeholders,
        assumption: known.assumption,
    })
}

/// Returns the places in a device assignment that a host has.
fn find_places(host: u32, owners: &[u32]) -> impl Iterator<Item = usize> {
    let places = owners.iter().enumerate();
    places.filter_map(move |(place, owner)| (*owner == host).then_some(place))
}

/// Returns a key for a program that it has on every host which takes part: those execute the same programs on the
/// same devices in the same order.
fn program_key(program: &CompiledProgram) -> String {
    let mut hasher = DefaultHasher::new();
    program.host_program.code.hash(&mut hasher);
    program.program.options.devices.hash(&mut hasher);
    format!("{} {:016x}", program.program.name, hasher.finish())
}

/// Returns the bytes of values one after the other; `None` if one is unknown.
fn concatenate_bytes<'a>(values: impl Iterator<Item = &'a Value>) -> Option<Vec<u8>> {
    let mut joined = Vec::new();
    for value in values {
        let bytes = value.bytes().or_else(|| value.placeholder_bytes())?;
        joined.extend_from_slice(&bytes);
    }
    Some(joined)
}

/// Returns the values of arguments of those shapes, device by device; `None` if the bytes are not those of whole
/// devices.
fn split_by_device(bytes: &[u8], parameters: &[Shape]) -> Option<Vec<Vec<Value>>> {
    let sizes = parameters.iter().map(|shape| shape.host_bytes() as usize);
    let sizes: Vec<usize> = sizes.collect();
    let of_device: usize = sizes.iter().sum();
    if of_device == 0 || !bytes.len().is_multiple_of(of_device) {
        return None;
    }
    let rows = bytes.chunks_exact(of_device).map(|mut row| {
        let values = sizes.iter().map(|size| {
            let (value, rest) = row.split_at(*size);
            row = rest;
            Value::Known(HostData::untracked(value.to_vec()))
        });
        values.collect()
    });
    Some(rows.collect())
}
