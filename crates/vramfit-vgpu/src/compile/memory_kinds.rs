//! The memory kinds that a program declares, for plugins that do not read them.
//!
//! JAX writes the kind of memory of each argument and result into the module (`mhlo.memory_kind`).
//! XLA's client reads it and compiles with an entry layout that says so. The deviceless compile of
//! older plugins does not read it: arguments in host memory then count as device memory, and a result
//! there is an error (`E1200`). For those plugins the entry layout is passed in the compile
//! options, as the client does.

use std::borrow::Cow;

use memchr::memmem;
use vramfit_model::program::options::with_memory_spaces;
use vramfit_model::program::{ElementType, MemorySpace, Shape};

use crate::hooks::{self, DeclaredValue};
use crate::pjrt::status::{PjrtResult, Status, StatusCode};

/// PJRT API version of JAX 0.10.0, the first whose deviceless compile reads memory kinds.
const MIN_MINOR_VERSION: i32 = 104;
/// Part of the names of all kinds of host memory.
const HOST_KIND: &[u8] = b"pinned_host";

/// Returns the compile options for a plugin of this version, with the memory kinds of the program added
/// if the plugin does not read them itself.
pub(crate) fn add_memory_kinds<'a>(
    options: &'a [u8],
    code: &[u8],
    plugin_minor_version: i32,
) -> PjrtResult<Cow<'a, [u8]>> {
    // The module contains strings verbatim, so most programs need not be parsed.
    let mentions_host_memory = || memmem::find(code, HOST_KIND).is_some();
    if plugin_minor_version >= MIN_MINOR_VERSION || !mentions_host_memory() {
        return Ok(Cow::Borrowed(options));
    }
    let Some(hooks) = hooks::get() else {
        return Ok(Cow::Borrowed(options));
    };
    let interface = hooks.program_interface(code).map_err(|why| unsupported(&why))?;
    let parameters = shapes(&interface.parameters)?;
    let outputs = shapes(&interface.outputs)?;
    let is_host = |shape: &Shape| shape.space == MemorySpace::Host;
    if !parameters.iter().chain(&outputs).any(is_host) {
        // Host memory is used inside the program only, which the compiler handles itself.
        return Ok(Cow::Borrowed(options));
    }
    Ok(Cow::Owned(with_memory_spaces(options, &parameters, &outputs)))
}

fn shapes(values: &[DeclaredValue]) -> PjrtResult<Vec<Shape>> {
    values.iter().map(shape).collect()
}

fn shape(value: &DeclaredValue) -> PjrtResult<Shape> {
    let element_type = ElementType::from_name(&value.element_type)
        .ok_or_else(|| unsupported(&format!("unknown element type `{}`", value.element_type)))?;
    // The names that XLA's client knows (`GetMemorySpaceColor` in `xla/pjrt/utils.cc`).
    let space = match value.memory_kind.as_str() {
        "" | "device" => MemorySpace::Device,
        "pinned_host" | "unpinned_host" => MemorySpace::Host,
        other => return Err(unsupported(&format!("unknown memory kind `{other}`"))),
    };
    Ok(Shape { space, ..Shape::dense(element_type, &value.dims) })
}

fn unsupported(why: &str) -> Status {
    Status::new(
        StatusCode::Unimplemented,
        format!("vramfit cannot determine which arguments and results are in host memory: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(memory_kind: &str, element_type: &str) -> DeclaredValue {
        DeclaredValue {
            memory_kind: memory_kind.to_owned(),
            element_type: element_type.to_owned(),
            dims: vec![2],
        }
    }

    #[test]
    fn memory_kinds_map_to_memory_spaces() {
        let space = |kind| shape(&declared(kind, "f32")).map(|shape| shape.space);
        assert_eq!(space("").ok(), Some(MemorySpace::Device));
        assert_eq!(space("device").ok(), Some(MemorySpace::Device));
        assert_eq!(space("pinned_host").ok(), Some(MemorySpace::Host));
        assert!(space("tape").is_err());
        assert!(shape(&declared("", "f3")).is_err());
    }

    #[test]
    fn options_are_unchanged_without_host_memory_and_for_newer_plugins() {
        for (code, version) in
            [(&b"device"[..], MIN_MINOR_VERSION - 1), (b"pinned_host", MIN_MINOR_VERSION)]
        {
            let options = add_memory_kinds(b"options", code, version);
            assert_eq!(options.ok().as_deref(), Some(&b"options"[..]));
        }
    }
}
