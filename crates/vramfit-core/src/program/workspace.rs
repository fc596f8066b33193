//! Scratch memory that the routines of CUDA's libraries ask for: part of a program's temporaries,
//! but no sign of how much the program computes.

use super::proto::{HloInstructionProto, HloModuleProto};
use super::shape::{ElementType, Shape};

/// How XLA calls cuBLAS, cuDNN and CUB.
const LIBRARIES: &[&str] = &["__cublas$", "__cudnn$", "__cub$"];

/// Returns the bytes of the largest workspace in a module, 0 without any.
///
/// The calls come one after the other, so XLA puts their workspaces in the same place.
pub(super) fn largest(module: &HloModuleProto) -> u64 {
    module.instructions().filter_map(of_call).max().unwrap_or(0)
}

/// Returns the workspace of a library's routine: the last of its results, plain bytes.
fn of_call(call: &HloInstructionProto) -> Option<u64> {
    let is_library = LIBRARIES
        .iter()
        .any(|prefix| call.custom_call_target.starts_with(prefix));
    let result = call.shape.as_ref().filter(|_| is_library)?;
    let last = result.tuple_shapes.last()?;
    let is_bytes = ["s8", "u8"].contains(&ElementType(last.element_type).name());
    (is_bytes && last.dimensions.len() == 1).then(|| Shape::from_proto(last).bytes())
}

#[cfg(test)]
mod tests {
    use super::super::proto::ShapeProto;
    use super::*;

    const S8: i32 = 2;
    const F32: i32 = 11;

    fn call(target: &str, results: &[ShapeProto]) -> HloInstructionProto {
        HloInstructionProto {
            custom_call_target: target.into(),
            shape: Some(ShapeProto::tuple(results)),
            ..HloInstructionProto::default()
        }
    }

    #[test]
    fn the_largest_workspace_counts_once() {
        let product = ShapeProto::array(F32, &[4, 4]);
        let bytes = |count| ShapeProto::array(S8, &[count]);
        let calls = vec![
            call("__cublas$lt$matmul", &[product.clone(), bytes(4 << 20)]),
            call("__cublas$gemm", &[product, bytes(1 << 20)]),
        ];
        assert_eq!(largest(&HloModuleProto::of(calls)), 4 << 20);
    }

    #[test]
    fn results_that_are_no_workspace_do_not_count() {
        let product = ShapeProto::array(F32, &[4, 4]);
        let bytes = ShapeProto::array(S8, &[1 << 20]);
        let calls = vec![
            call("__cublas$gemm", &[bytes.clone(), product]),
            call("my_own_kernel", &[bytes]),
        ];
        assert_eq!(largest(&HloModuleProto::of(calls)), 0);
    }
}
