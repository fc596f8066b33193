//! What `jax.vmap` maps, for some of its elements at a time.

use rustc_hash::FxHashSet;

use super::computed::at_line;
use crate::bytes::Bytes;
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner};
use crate::section::Advice;

/// What the products of `jax.nn.dot_product_attention` are called, which maps its batch by a `jax.vmap` of its own.
const ATTENTION_PRODUCTS: [&str; 2] = ["->BNTS", "BNTS,"];

/// What is computed for all elements that the program's `jax.vmap` maps at the same time.
pub(super) fn chunks(memory: &ProgramMemory) -> Option<Advice> {
    let attention = attention_lines(memory);
    let is_mapped = |buffer: &&Buffer| {
        // Softmax and masks of attention have no other name than its line.
        let site = memory.user_site(buffer.frame).unwrap_or_default();
        let is_attention = is_attention_product(buffer) || attention.contains(site);
        matches!(buffer.owner, Owner::Activations | Owner::Gradients | Owner::Temporaries)
            && count_maps(&buffer.operation) > usize::from(is_attention)
    };
    let mapped = memory.buffers.iter().filter(is_mapped);
    let bytes = mapped.clone().map(|buffer| buffer.peak_bytes).sum();
    let largest = mapped.max_by_key(|buffer| buffer.peak_bytes)?;
    let at = at_line(memory, largest);
    let mapping = match maps_derivatives(first_name(&largest.operation)) {
        true => "`jax.vmap` maps, by itself or in `jax.jacfwd`, `jax.jacrev` and `jax.hessian`,",
        false => "`jax.vmap` maps",
    };
    // For a backward pass a loop keeps what each of its rounds saves.
    let by_hand = match memory.is_differentiated() {
        true => "`jax.lax.map(jax.checkpoint(f), ..., batch_size=...)`",
        false => "`jax.lax.map(..., batch_size=...)`",
    };
    Some(Advice {
        bytes,
        text: format!(
            "compute what {mapping} in chunks: {} are for all of its elements{at}; `vramfit plan --try chunk` finds \
             the largest chunks that fit (by hand: {by_hand})",
            Bytes(bytes)
        ),
    })
}

/// Returns the lines of the user's that call `jax.nn.dot_product_attention`, themselves or through a library.
fn attention_lines(memory: &ProgramMemory) -> FxHashSet<&str> {
    let products = memory.buffers.iter().filter(|buffer| is_attention_product(buffer));
    products.filter_map(|buffer| memory.user_site(buffer.frame)).collect()
}

fn is_attention_product(buffer: &Buffer) -> bool {
    ATTENTION_PRODUCTS.iter().any(|product| buffer.operation.contains(product))
}

/// Returns the first of the names that XLA has put together, where it has made one operation of several.
fn first_name(operation: &str) -> &str {
    operation.split(';').next().unwrap_or_default()
}

/// Returns how many `jax.vmap` an operation is mapped by. JAX nests the transformations of a function around its name:
/// `jit(train)/transpose(jvp(vmap(f)))/sin`.
fn count_maps(operation: &str) -> usize {
    let name = first_name(operation);
    let starts = name.match_indices("vmap(").map(|(at, _)| at);
    starts.filter(|at| *at == 0 || name[..*at].ends_with(['/', '('])).count()
}

/// Returns `true` if what is mapped are derivatives, of the program's `jax.vmap` or of a Jacobian: JAX calls both the same.
fn maps_derivatives(operation: &str) -> bool {
    operation.contains("vmap(jvp(") || operation.contains("vmap(transpose(")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::{Frame, Phase};

    fn memory(buffers: &[(&str, u32)]) -> ProgramMemory {
        let buffers = buffers.iter().map(|(operation, line)| Buffer {
            owner: Owner::Activations,
            peak_bytes: 4096,
            operation: (*operation).to_owned(),
            frame: Some(*line),
            ..Buffer::default()
        });
        let frames =
            (0..3).map(|line| Frame { site: format!("a.py:{line} (f)"), ..Frame::default() });
        ProgramMemory {
            buffers: buffers.collect(),
            frames: frames.collect(),
            ..ProgramMemory::default()
        }
    }

    #[test]
    fn what_is_mapped_is_found_in_whatever_it_is_nested() {
        for (operation, is_found) in [
            ("jit(f)/vmap(jit(g))/sin", true),
            ("jit(f)/vmap()/exp", true),
            ("vmap(f)/exp", true),
            ("jit(train)/jvp(vmap(laplacian))/sin", true),
            ("jit(train)/transpose(jvp(vmap(vmap())))/transpose", true),
            ("jit(train)/transpose(jvp(vmap(jit(trace))))/jit(_where)/select_n", true),
            ("jit(f)/vmapped/add", false),
            ("jit(my_vmap(x))/add", false),
            ("jit(f)/tanh", false),
            // XLA has put another name behind its own.
            ("jit(f)/tanh;jit(f)/vmap()/tanh", false),
        ] {
            let advice = chunks(&memory(&[(operation, 0)]));
            assert_eq!(advice.is_some(), is_found, "{operation}");
        }
    }

    #[test]
    fn the_map_inside_of_attention_is_none_of_the_programs() {
        let own = [
            ("jit(f)/jvp(vmap(BTNH,BSNH->BNTS))/dot_general", 0),
            ("jit(f)/jvp(vmap())/exp", 0),
            ("jit(f)/transpose(jvp(vmap(BNTS,BSNH->BTNH)))/dot_general", 0),
        ];
        assert!(chunks(&memory(&own)).is_none());
        // Another line maps by itself, and another maps the attention.
        let beside = [&own[..], &[("jit(f)/jvp(vmap())/exp", 1)]].concat();
        assert_eq!(chunks(&memory(&beside)).expect("one").bytes, 4096);
        let mapped = [
            ("jit(f)/jvp(vmap(vmap(BTNH,BSNH->BNTS)))/dot_general", 0),
            ("jit(f)/jvp(vmap(vmap()))/exp", 0),
        ];
        assert_eq!(chunks(&memory(&mapped)).expect("both").bytes, 8192);
    }

    #[test]
    fn under_a_gradient_each_chunk_saves_only_its_inputs() {
        let mut program = memory(&[("jit(f)/vmap()/exp", 0)]);
        let text = chunks(&program).expect("mapped").text;
        assert!(text.ends_with("(by hand: `jax.lax.map(..., batch_size=...)`)"), "{text}");
        program.buffers[0].phase = Phase::Backward;
        let text = chunks(&program).expect("mapped").text;
        assert!(text.contains("`jax.lax.map(jax.checkpoint(f), ..., batch_size=...)`"), "{text}");
    }
}
