//! The memory kinds that a program declares, for plugins that do not read them.
//!
//! JAX writes the kind of memory of each argument and result into the module (`mhlo.memory_kind`).
//! XLA's client reads it and compiles with an entry layout that says so. The deviceless compile of
//! older plugins does not read it: arguments in host memory then count as device memory, and a result
//! there is refused (`E1200`). For those plugins the entry layout is handed over with the compile
//! options, as the client does.

use std::borrow::Cow;

use vramfit_core::program::options::with_memory_spaces;
use vramfit_core::program::{ElementType, MemorySpace, Shape};

use crate::hooks::{self, DeclaredValue};
use crate::pjrt::status::{Answer, Code, Status};

/// PJRT API version of JAX 0.10.0, whose deviceless compile reads memory kinds.
const FIRST_WITH_MEMORY_KINDS: i32 = 104;
/// Part of the names of all kinds of host memory.
const HOST: &[u8] = b"pinned_host";

/// Returns the compile options for a plugin of this version, completed by the memory kinds of the
/// program where it does not read them.
pub(crate) fn complete<'a>(
    options: &'a [u8],
    code: &[u8],
    plugin_minor_version: i32,
) -> Answer<Cow<'a, [u8]>> {
    // Strings stand in the module as they are, so that most programs need not be read.
    let names_host_memory = || code.windows(HOST.len()).any(|window| window == HOST);
    if plugin_minor_version >= FIRST_WITH_MEMORY_KINDS || !names_host_memory() {
        return Ok(Cow::Borrowed(options));
    }
    let Some(hooks) = hooks::get() else {
        return Ok(Cow::Borrowed(options));
    };
    let interface = hooks.interface(code).map_err(|why| refuse(&why))?;
    let parameters = shapes(&interface.parameters)?;
    let outputs = shapes(&interface.outputs)?;
    let is_host = |shape: &Shape| shape.space == MemorySpace::Host;
    if !parameters.iter().chain(&outputs).any(is_host) {
        // Host memory within the program only, which the compiler sees by itself.
        return Ok(Cow::Borrowed(options));
    }
    Ok(Cow::Owned(with_memory_spaces(
        options,
        &parameters,
        &outputs,
    )))
}

fn shapes(values: &[DeclaredValue]) -> Answer<Vec<Shape>> {
    values.iter().map(shape).collect()
}

fn shape(value: &DeclaredValue) -> Answer<Shape> {
    let element_type = ElementType::from_name(&value.element_type).ok_or_else(|| {
        refuse(&format!(
            "element type `{}` is not known",
            value.element_type
        ))
    })?;
    // The names that XLA's client knows (`GetMemorySpaceColor` in `xla/pjrt/utils.cc`).
    let space = match value.memory_kind.as_str() {
        "" | "device" => MemorySpace::Device,
        "pinned_host" | "unpinned_host" => MemorySpace::Host,
        other => return Err(refuse(&format!("memory kind `{other}` is not known"))),
    };
    Ok(Shape {
        space,
        ..Shape::dense(element_type, &value.dims)
    })
}

fn refuse(why: &str) -> Status {
    Status::new(
        Code::Unimplemented,
        format!("vramfit cannot tell which arguments and results are in host memory: {why}"),
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
    fn kinds_become_the_spaces_of_xla() {
        let space = |kind| shape(&declared(kind, "f32")).map(|shape| shape.space);
        assert_eq!(space("").ok(), Some(MemorySpace::Device));
        assert_eq!(space("device").ok(), Some(MemorySpace::Device));
        assert_eq!(space("pinned_host").ok(), Some(MemorySpace::Host));
        assert!(space("tape").is_err());
        assert!(shape(&declared("", "f3")).is_err());
    }

    #[test]
    fn programs_without_host_memory_and_newer_plugins_are_left_alone() {
        for (code, version) in [
            (&b"device"[..], FIRST_WITH_MEMORY_KINDS - 1),
            (b"pinned_host", FIRST_WITH_MEMORY_KINDS),
        ] {
            let options = complete(b"options", code, version);
            assert_eq!(options.ok().as_deref(), Some(&b"options"[..]));
        }
    }
}
